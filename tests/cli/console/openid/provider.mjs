// An issuer of OpenID Connect, oidc-provider of npm, which the OpenID Foundation has certified. Its own pages ask for a
// user and a consent. A user `alice` becomes `alice@example.com`.
//
//     node provider.mjs DIRECTORY_OF_NODE_MODULES SETTINGS
//
// SETTINGS is JSON: client, secret, redirect, lifetimes (seconds of the first ID token, and of further ones), key (PKCS #8, base64), and for HTTPS
// certificate and privateKey (PEM). Prints `Issuer at URL`. Ends with its standard input.
import { createPrivateKey } from "node:crypto";
import http from "node:http";
import https from "node:https";

// Only the first line of the standard output is read.
console.info = console.error;

const [modules, text] = process.argv.slice(2);
const settings = JSON.parse(text);
const { default: Provider } = await import(`${modules}/oidc-provider/lib/index.js`);

const der = Buffer.from(settings.key, "base64");
const key = createPrivateKey({ key: der, format: "der", type: "pkcs8" }).export({ format: "jwk" });

const answer = (request, response) => callback(request, response);
const server = settings.certificate
  ? https.createServer({ cert: settings.certificate, key: settings.privateKey }, answer)
  : http.createServer(answer);
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const issuer = `${settings.certificate ? "https" : "http"}://127.0.0.1:${server.address().port}`;

let issued = 0;
const provider = new Provider(issuer, {
  clients: [{
    client_id: settings.client,
    client_secret: settings.secret,
    redirect_uris: [settings.redirect],
    grant_types: ["authorization_code"],
    response_types: ["code"],
    id_token_signed_response_alg: "ES256",
  }],
  jwks: { keys: [{ ...key, kid: "k", alg: "ES256", use: "sig" }] },
  cookies: { keys: [settings.secret] },
  claims: { openid: ["sub"], email: ["email", "email_verified"] },
  // ID tokens have the claims of their scopes, because an API server reads no other response.
  conformIdTokenClaims: false,
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, email: `${id}@example.com`, email_verified: true }),
  }),
  pkce: { required: () => true },
  ttl: { IdToken: () => (issued++ === 0 ? settings.lifetimes[0] : settings.lifetimes[1]) },
});
const callback = provider.callback();
console.log(`Issuer at ${issuer}`);
process.stdin.on("end", () => process.exit(0)).resume();
