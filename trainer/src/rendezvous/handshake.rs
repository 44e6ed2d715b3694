//! How two processes show each other that they know the secret of their job, without sending it.
//!
//! | from | what |
//! |---|---|
//! | who listens | greeting, a number that is used once |
//! | who connects | greeting, another such number, proof |
//! | who listens | proof |
//!
//! A proof is an HMAC of whose it is, of what the connection is for, and of both numbers. Whoever listens proves nothing
//! to strangers, who could try secrets on it at home. What is said after that is not encrypted.

use std::io::{self, Read, Write};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::secret::{Secret, random_bytes};

/// What both begin with; the number changes with what ranks and the hub say to each other.
const GREETING: [u8; 12] = *b"stepscope  3";
/// The part of it that every version has.
const NAME: &[u8] = b"stepscope ";
/// Bytes of a number that is used once, and of a proof.
const NONCE: usize = 32;
const PROOF: usize = 32;

type Nonce = [u8; NONCE];

/// Why the other side of a connection is not trusted; what says more is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(crate) enum Mistrust {
    #[error("it did not say in time who it is")]
    Silent,
    #[error("it is not a rank of stepscope")]
    Foreign,
    #[error("it is another version of stepscope")]
    Version,
    #[error("it has another secret: STEPSCOPE_SECRET has to be the same for all ranks")]
    Secret,
}

impl From<Mistrust> for io::Error {
    fn from(mistrust: Mistrust) -> io::Error {
        io::Error::other(mistrust)
    }
}

/// Which side a proof is from: one cannot be sent back as the other.
#[derive(Clone, Copy)]
enum Side {
    Listens,
    Connects,
}

/// What both sides know before they prove anything.
struct Meeting<'a> {
    secret: &'a Secret,
    /// What the connection is for.
    purpose: &'a str,
    listener: Nonce,
    connector: Nonce,
}

impl Meeting<'_> {
    fn digest(&self, side: Side) -> Option<Hmac<Sha256>> {
        let mut digest = Hmac::<Sha256>::new_from_slice(self.secret.bytes()).ok()?;
        digest.update(&GREETING);
        digest.update(&[side as u8]);
        digest.update(&self.listener);
        digest.update(&self.connector);
        digest.update(self.purpose.as_bytes());
        Some(digest)
    }

    fn proof(&self, side: Side) -> Result<[u8; PROOF], Mistrust> {
        let digest = self.digest(side).ok_or(Mistrust::Secret)?;
        Ok(digest.finalize().into_bytes().into())
    }

    /// Takes as long whatever is wrong.
    fn check(&self, side: Side, proof: &[u8; PROOF]) -> Result<(), Mistrust> {
        let digest = self.digest(side).ok_or(Mistrust::Secret)?;
        digest.verify_slice(proof).map_err(|_| Mistrust::Secret)
    }
}

/// The side of whoever listens.
pub(super) fn welcome(stream: &mut (impl Read + Write), secret: &Secret, purpose: &str) -> Result<(), Mistrust> {
    let listener = nonce()?;
    say(stream, &[&GREETING[..], &listener].concat())?;
    hear_greeting(stream)?;
    let connector = hear(stream)?;
    let meeting = Meeting { secret, purpose, listener, connector };
    meeting.check(Side::Connects, &hear(stream)?)?;
    say(stream, &meeting.proof(Side::Listens)?)
}

/// The side of whoever connects.
pub(super) fn introduce(stream: &mut (impl Read + Write), secret: &Secret, purpose: &str) -> Result<(), Mistrust> {
    hear_greeting(stream)?;
    let (listener, connector) = (hear(stream)?, nonce()?);
    let meeting = Meeting { secret, purpose, listener, connector };
    say(stream, &[&GREETING[..], &connector, &meeting.proof(Side::Connects)?].concat())?;
    // Whoever does not trust us hangs up.
    meeting.check(Side::Listens, &hear(stream).map_err(|_| Mistrust::Secret)?)
}

fn nonce() -> Result<Nonce, Mistrust> {
    random_bytes().map_err(|_| Mistrust::Silent)
}

fn say(stream: &mut impl Write, bytes: &[u8]) -> Result<(), Mistrust> {
    stream.write_all(bytes).map_err(|_| Mistrust::Silent)
}

fn hear<const N: usize>(stream: &mut impl Read) -> Result<[u8; N], Mistrust> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).map_err(|_| Mistrust::Silent)?;
    Ok(bytes)
}

fn hear_greeting(stream: &mut impl Read) -> Result<(), Mistrust> {
    match hear(stream)? {
        GREETING => Ok(()),
        other if other.starts_with(NAME) => Err(Mistrust::Version),
        _ => Err(Mistrust::Foreign),
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixStream, thread};

    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::of_variable(Some(text.into())).unwrap()
    }

    /// What the one who listens and the one who connects think of each other.
    fn meet(listener: (&str, &str), connector: (&str, &str)) -> [Result<(), Mistrust>; 2] {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            let welcome = scope.spawn(move || welcome(&mut here, &secret(listener.0), listener.1));
            let introduced = introduce(&mut there, &secret(connector.0), connector.1);
            drop(there);
            [welcome.join().unwrap(), introduced]
        })
    }

    #[test]
    fn only_those_who_know_the_secret_of_a_job_trust_each_other() {
        let [ours, theirs] = ["a secret of our job", "a secret of another"];
        for secret in [ours, ""] {
            assert_eq!(meet((secret, "hub"), (secret, "hub")), [Ok(()); 2]);
        }
        for connector in [(theirs, "hub"), ("", "hub"), (ours, "rank 1")] {
            assert_eq!(meet((ours, "hub"), connector), [Err(Mistrust::Secret); 2], "{connector:?}");
        }
    }

    #[test]
    fn other_words_are_told_apart() {
        for (said, why) in [
            (&b""[..], Mistrust::Silent),
            (b"stepscope", Mistrust::Silent),
            (b"stepscope  4 and more", Mistrust::Version),
            (b"GET / HTTP/1.1\r\n\r\n", Mistrust::Foreign),
            (&[255; 100], Mistrust::Foreign),
        ] {
            let (mut here, mut there) = UnixStream::pair().unwrap();
            there.write_all(said).unwrap();
            there.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(welcome(&mut here, &Secret::default(), "hub"), Err(why), "{said:?}");
        }
    }

    #[test]
    fn what_a_listener_says_is_no_proof_for_it() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let key = secret("a secret of our job");
        let mirror = thread::spawn(move || {
            let mut heard = [0; GREETING.len() + NONCE];
            there.write_all(&[&GREETING[..], &[7; NONCE]].concat()).unwrap();
            there.read_exact(&mut heard).unwrap();
            let proof: [u8; PROOF] = hear(&mut there).unwrap();
            there.write_all(&proof).unwrap();
        });
        assert_eq!(introduce(&mut here, &key, "hub"), Err(Mistrust::Secret));
        mirror.join().unwrap();
    }
}
