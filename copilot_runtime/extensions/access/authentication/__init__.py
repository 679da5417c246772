"""The built-in authentication schemes, one for each kind of credential."""

SCHEMES = {
    "api_keys": "copilot_runtime.extensions.access.authentication.api_keys:ApiKeyScheme",
    "jwt": "copilot_runtime.extensions.access.authentication.jwt:JwtScheme",
    "proxy": "copilot_runtime.extensions.access.authentication.proxy:ProxyScheme",
    "service_tokens": (
        "copilot_runtime.extensions.access.authentication.service_tokens:ServiceTokenScheme"
    ),
}
"""Name in the setting `access.authenticate` → import string of a `Scheme` made of `Settings`."""
