//! Signatures of requests, version 4: whoever asks has the secret of the key that is named.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use super::server::{KEY, Request, SECRET, decoded};

/// Checks who asks; what is wrong, in the words of S3.
pub(super) fn check(request: &Request) -> Result<(), &'static str> {
    let header = |name: &str| request.headers.get(name).map_or("", String::as_str);
    let part = |name: &str| {
        let rest = header("authorization").split_once(&format!("{name}=")).map_or("", |(_, rest)| rest);
        rest.split(',').next().unwrap_or_default()
    };
    let (key, scope) = part("Credential").split_once('/').ok_or("AccessDenied")?;
    if key != KEY {
        return Err("InvalidAccessKeyId");
    }
    let pairs = request.query.split('&').filter_map(|pair| pair.split_once('='));
    let mut query: Vec<String> =
        pairs.map(|(name, value)| format!("{}={}", encoded(&decoded(name)), encoded(&decoded(value)))).collect();
    query.sort_unstable();
    let signed = part("SignedHeaders");
    let headers: String = signed.split(';').map(|name| format!("{name}:{}\n", header(name))).collect();
    let canonical = format!(
        "{}\n{}\n{}\n{headers}\n{signed}\n{}",
        request.method,
        request.path,
        query.join("&"),
        header("x-amz-content-sha256")
    );
    let hash = hex(&Sha256::digest(canonical));
    let text = format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{hash}", header("x-amz-date"));
    let secret = format!("AWS4{SECRET}").into_bytes();
    let signing_key = scope.split('/').fold(secret, |key, part| keyed(&key, part));
    if hex(&keyed(&signing_key, &text)) == part("Signature") { Ok(()) } else { Err("SignatureDoesNotMatch") }
}

/// As what is signed is written, however it was sent.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encode).collect()
}

fn keyed(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
