"""Truth for the patch `moe_routed_scaling`: routing, with the scaling factor applied once."""

from reference.experts import routed_experts
from reference.routing import route_hashed, route_learned, route_selected, router_scores

__all__ = ["route_hashed", "route_learned", "route_selected", "routed_experts", "router_scores"]
