// Searches the knowledge of a server over gRPC, for a user if one is named:
//   npm install @grpc/grpc-js @grpc/proto-loader
//   PROTOS=$(python -c "import copilot_runtime.extensions.grpc.protos as protos; print(protos.__path__[0])")
//   SERVICE_SECRET=… node search.mjs 127.0.0.1:50051 "$PROTOS" [ann]
import { createHash, createHmac, randomBytes } from "node:crypto";
import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";

const [address, protos, user = ""] = process.argv.slice(2);
const options = { includeDirs: [protos], keepCase: true };
const vector = protoLoader.loadSync("vector.proto", options)["copilot.vector.v1.Vector"];
const client = new grpc.Client(address, grpc.credentials.createInsecure());

function sign(service, secret, operation, message) {
  const digest = createHash("sha256").update(message).digest("hex");
  const text = `${service}:${Date.now()}:${randomBytes(16).toString("hex")}:${digest}`;
  const signed = `copilot-runtime service token 1\n${operation}\n${text}`;
  const signature = createHmac("sha256", secret).update(signed).digest("hex");
  return Buffer.from(`${text}:${signature}`).toString("base64");
}

function encode(name) {
  const hex = (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`;
  return encodeURIComponent(name).replace(/[!'()*]/g, hex);
}

function call(method, request, { user = "", tenant = "" } = {}) {
  const message = method.requestSerialize(request); // once: these bytes are signed, and sent
  const metadata = new grpc.Metadata();
  let operation = method.path; // such as /copilot.vector.v1.Vector/SearchContent
  if (user || tenant) {
    operation += `?user=${encode(user)}&tenant=${encode(tenant)}`; // both, also an empty one
    if (user) metadata.set("copilot-user", encode(user));
    if (tenant) metadata.set("copilot-tenant", tenant);
  }
  const token = sign("shop", process.env.SERVICE_SECRET, operation, message);
  metadata.set("authorization", `Bearer ${token}`);
  const [pass, deadline] = [(bytes) => bytes, Date.now() + 10_000];
  return new Promise((resolve, reject) => {
    const done = (error, answer) => (error ? reject(error) : resolve(answer));
    const { path, responseDeserialize: read } = method;
    client.makeUnaryRequest(path, pass, read, message, metadata, { deadline }, done);
  });
}

const request = { input: ["When does the library open?"], limit: 3 };
const { passages } = await call(vector.SearchContent, request, { user });
for (const { title, text } of passages) console.log(`${title}: ${text}`);
client.close();
