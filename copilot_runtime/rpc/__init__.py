"""Services over gRPC: their `.proto` files, the stubs made of these, and a client that signs.

Needs the extra `grpc`; nothing is imported before a service or a client is made.
"""
