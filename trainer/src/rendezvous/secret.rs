//! What the ranks of a job know, and nobody else does.

use std::{
    fmt, io,
    io::{Read, Write},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use stepscope_collector::cache;

use crate::error::TrainError;

/// The variable in which ranks find the secret of their job. Other users do not see it, as they do command lines.
pub(crate) const SECRET: &str = "STEPSCOPE_SECRET";
/// Fewer bytes could be guessed.
const SHORTEST: usize = 16;
/// As long as what is made with it.
const RANDOM_BYTES: usize = 32;

/// The folder and the file of a user's own key, from which secrets of jobs are made.
const KEY_FOLDER: &str = "keys";
const KEY_FILE: &str = "jobs";
/// How long whoever makes the key may take to write it.
const KEY_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The secret of a job, or that it has none. It is never sent.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// The one that a variable has.
    pub(super) fn of_variable(text: Option<String>) -> Result<Secret, TrainError> {
        match text.unwrap_or_default() {
            text if text.is_empty() || text.len() >= SHORTEST => Ok(Secret(text.into_bytes())),
            _ => Err(TrainError::NotJoined(format!(
                "{SECRET} has fewer than {SHORTEST} characters; use random ones, such as those of `openssl rand -hex 16`"
            ))),
        }
    }

    /// The one of a job whose ranks have nothing in common but their user, and the folders of that: a key that only this user
    /// reads, and what the job is called. The first rank of all makes the key.
    pub(super) fn of_user(job: &str) -> io::Result<Secret> {
        let key = cache::in_folder(KEY_FOLDER, |folder| user_key(&folder.join(KEY_FILE)))?;
        let mut digest = Hmac::<Sha256>::new_from_slice(&key).map_err(io::Error::other)?;
        digest.update(job.as_bytes());
        Ok(Secret(digest.finalize().into_bytes().to_vec()))
    }

    /// Whether anybody may be a rank of the job.
    pub fn is_missing(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Says whether there is one.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_missing() { "Secret(missing)" } else { "Secret(…)" })
    }
}

/// The key in a file, which is made where there is none.
fn user_key(path: &Path) -> io::Result<[u8; RANDOM_BYTES]> {
    match cache::create_own(path) {
        Ok(mut file) => {
            let key = random_bytes().map_err(|error| io::Error::other(error.to_string()))?;
            file.write_all(&key)?;
            file.sync_all()?;
            return Ok(key);
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let deadline = Instant::now() + KEY_WITHIN;
    loop {
        let mut key = Vec::new();
        cache::open_own(path)?.take(RANDOM_BYTES as u64).read_to_end(&mut key)?;
        match key.try_into() {
            Ok(key) => return Ok(key),
            // Somebody is about to write it.
            Err(_) if Instant::now() < deadline => thread::sleep(LOOK_EVERY),
            Err(_) => return Err(io::Error::other(format!("{} is damaged", path.display()))),
        }
    }
}

/// Letters that nobody can guess.
pub(crate) fn random_letters() -> Result<String, TrainError> {
    let bytes = random_bytes::<RANDOM_BYTES>()
        .map_err(|error| TrainError::NotJoined(format!("cannot make a secret for the job: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Bytes that nobody can guess.
pub(super) fn random_bytes<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_long_and_stays_one() {
        let secret = |text: &str| Secret::of_variable(Some(text.into()));
        assert!(secret("").unwrap().is_missing() && Secret::of_variable(None).unwrap().is_missing());
        let short = secret("123456").unwrap_err().to_string();
        assert!(short.starts_with("STEPSCOPE_SECRET has fewer than 16 characters"), "{short}");
        let random = random_letters().unwrap();
        assert_eq!(random.len(), 2 * RANDOM_BYTES);
        assert_ne!(random, random_letters().unwrap());
        assert_eq!(format!("{:?}", secret(&random).unwrap()), "Secret(…)");
    }

    #[test]
    fn all_who_start_at_once_have_the_same_key() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let keys: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| user_key(&path).unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]) && keys[0] != [0; RANDOM_BYTES]);
        assert_ne!(user_key(&directory.path().join("another")).unwrap(), keys[0]);
    }
}
