"""The configuration of the service: YAML into checked models, and the settings that follow from them."""
