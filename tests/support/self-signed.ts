import { generateKeyPairSync, sign } from "node:crypto";

/** A certificate for 127.0.0.1 that vouches for itself, made here so that no private key lies in the repository. PEM. */
export function selfSigned(): { cert: string; key: string } {
  const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const element = (tag: number, ...parts: Buffer[]): Buffer => {
    const content = Buffer.concat(parts);
    const length = content.length < 128 ? [content.length] : [0x82, content.length >> 8, content.length & 0xff];
    return Buffer.concat([Buffer.from([tag, ...length]), content]);
  };
  const bytes = (...values: number[]): Buffer => Buffer.from(values);
  const sequence = (...parts: Buffer[]): Buffer => element(0x30, ...parts);
  const time = (text: string): Buffer => element(0x17, Buffer.from(text));
  const ecdsaWithSha256 = sequence(element(0x06, bytes(0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02)));
  const name = sequence(element(0x31, sequence(element(0x06, bytes(0x55, 0x04, 0x03)), element(0x0c, Buffer.from("brain test")))));
  const alternativeNames = sequence(element(0x06, bytes(0x55, 0x1d, 0x11)), element(0x04, sequence(element(0x87, bytes(127, 0, 0, 1)))));
  const body = sequence(
    element(0xa0, element(0x02, bytes(2))),
    element(0x02, bytes(1)),
    ecdsaWithSha256,
    name,
    sequence(time("200101000000Z"), time("491231235959Z")),
    name,
    publicKey.export({ type: "spki", format: "der" }),
    element(0xa3, sequence(alternativeNames)),
  );
  const certificate = sequence(body, ecdsaWithSha256, element(0x03, bytes(0), sign("sha256", body, privateKey)));
  const base64 = certificate.toString("base64").replace(/.{64}/g, "$&\n");
  return {
    cert: `-----BEGIN CERTIFICATE-----\n${base64}\n-----END CERTIFICATE-----\n`,
    key: privateKey.export({ type: "pkcs8", format: "pem" }) as string,
  };
}
