"""The same token ids through two deployments: do they say the same, and where do they part?"""
