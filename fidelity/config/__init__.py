"""What a run is told: flags, environment and fidelity.toml, each value with its origin."""
