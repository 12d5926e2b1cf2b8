"""One server over HTTP: the raw client, its streams, its pace and its caps."""
