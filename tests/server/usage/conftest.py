from usage_scene import metered as metered
