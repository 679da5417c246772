// A client of all services: each call is signed for its method and its message.

import { createHash, createHmac, randomBytes } from "node:crypto";
import { join } from "node:path";
import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";

const PURPOSE = "copilot-runtime service token 1\n";

/** Return a token for one call: `path` is `/package.Service/Method`. */
export function sign(service, secret, path, body, milliseconds = Date.now()) {
  const nonce = randomBytes(16).toString("hex");
  const digest = createHash("sha256").update(body).digest("hex");
  const text = `${service}:${milliseconds}:${nonce}:${digest}`;
  const signature = createHmac("sha256", secret).update(`${PURPOSE}${path}\n${text}`).digest("hex");
  return Buffer.from(`${text}:${signature}`).toString("base64");
}

/** Return a client of the services in our `.proto` files; `user` is for whom it asks. */
export function connect(address, protos, { service, secret, user = "", token = sign }) {
  const client = new grpc.Client(address, grpc.credentials.createInsecure());
  const start = (file, name, method, request) => {
    const definition = protoLoader.loadSync(join(protos, `${file}.proto`), { keepCase: true });
    const found = definition[`copilot.${file}.v1.${name}`][method];
    const body = found.requestSerialize(request);
    const suffix = user ? `?user=${encodeURIComponent(user)}&tenant=` : "";
    const metadata = new grpc.Metadata();
    metadata.set("authorization", `Bearer ${token(service, secret, found.path + suffix, body)}`);
    if (user) metadata.set("copilot-user", user);
    return [found, body, metadata, { deadline: Date.now() + 30_000 }];
  };
  const same = (data) => data;
  return {
    ask: (...call) =>
      new Promise((resolve, reject) => {
        const [found, body, metadata, options] = start(...call);
        client.makeUnaryRequest(
          found.path, same, found.responseDeserialize, body, metadata, options,
          (error, answer) => (error ? reject(error) : resolve(answer)),
        );
      }),
    follow: (...call) => {
      const [found, body, metadata, options] = start(...call);
      return client.makeServerStreamRequest(
        found.path, same, found.responseDeserialize, body, metadata, options,
      );
    },
    close: () => client.close(),
  };
}
