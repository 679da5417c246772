"""Methods of gRPC services as tools: https://grpc.io. Needs the extra `grpc`."""
