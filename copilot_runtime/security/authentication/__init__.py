"""Ways to sign in that need no code: each knows one kind of credential."""

SCHEMES = {
    "api_keys": "copilot_runtime.security.authentication.api_keys:ApiKeyScheme",
    "jwt": "copilot_runtime.security.authentication.jwt:JwtScheme",
    "proxy": "copilot_runtime.security.authentication.proxy:ProxyScheme",
    "service_tokens": "copilot_runtime.security.authentication.service_tokens:ServiceTokenScheme",
}
"""Name in the setting `access.authenticate` → import string of a `Scheme` made of `Settings`."""
