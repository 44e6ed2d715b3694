//! A place in object storage, as people type it: `s3://bucket/path`.

use std::{fmt, str::FromStr};

use object_store::path::Path as ObjectPath;

use crate::error::StorageError;

const WRONG_PATH: &str = "its path has an empty part, a part of dots or a control character";

/// Where objects are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// Amazon S3, and what speaks its protocol.
    S3,
    /// Google Cloud Storage.
    Gs,
    /// Azure Blob Storage.
    Az,
    /// A file system.
    File,
}

/// A run, a trace or a folder of traces in object storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    pub(crate) scheme: Scheme,
    /// The bucket or container; empty for files.
    pub(crate) bucket: String,
    pub(crate) path: ObjectPath,
}

impl Location {
    /// Whether a text is meant to be a URL, and not a path.
    pub fn is_meant(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| {
            !scheme.is_empty() && scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '+')
        })
    }

    /// A place inside of this one.
    pub fn join(&self, inside: &str) -> Result<Location, StorageError> {
        let wrong = |_| StorageError::Url { url: format!("{self}/{inside}"), why: WRONG_PATH };
        let path = self.inside(inside).map_err(wrong)?;
        Ok(Location { path, ..self.clone() })
    }

    /// What it is called: the last part of it, or its bucket.
    pub fn name(&self) -> &str {
        self.path.filename().unwrap_or(&self.bucket)
    }

    /// The path of an object in it; its own, for an empty name.
    pub(crate) fn inside(&self, name: &str) -> Result<ObjectPath, object_store::path::Error> {
        match (name, self.path.is_root()) {
            ("", _) => Ok(self.path.clone()),
            (name, true) => ObjectPath::parse(name),
            (name, false) => ObjectPath::parse(format!("{}/{name}", self.path)),
        }
    }
}

impl FromStr for Location {
    type Err = StorageError;

    fn from_str(text: &str) -> Result<Location, StorageError> {
        let wrong = |why: &'static str| StorageError::Url { url: without_secrets(text), why };
        let (scheme, rest) = text.split_once("://").ok_or(wrong("it has no scheme"))?;
        let scheme = match scheme {
            "s3" => Scheme::S3,
            "gs" => Scheme::Gs,
            "az" => Scheme::Az,
            "file" => Scheme::File,
            _ => return Err(wrong("only s3://, gs://, az:// and file:// are known")),
        };
        if rest.contains('?') {
            return Err(wrong("it has a query, and credentials belong in the environment"));
        }
        let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.contains('@') || bucket.contains(':') {
            return Err(wrong("it has a user or a port, and credentials belong in the environment"));
        }
        // As RFC 8089 has it, which browsers follow.
        let bucket = if scheme == Scheme::File && bucket.eq_ignore_ascii_case("localhost") { "" } else { bucket };
        match (scheme, bucket.is_empty()) {
            (Scheme::File, false) => return Err(wrong("a path of a file begins with a slash, as in file:///data/run")),
            (Scheme::S3 | Scheme::Gs | Scheme::Az, true) => return Err(wrong("it names no bucket")),
            _ if !bucket.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter)) => {
                return Err(wrong("its bucket has a character that no bucket has"));
            }
            _ => {}
        }
        let parsed = match scheme {
            Scheme::File => ObjectPath::from_url_path(path),
            Scheme::S3 | Scheme::Gs | Scheme::Az => ObjectPath::parse(path),
        };
        let parsed = parsed.ok().filter(|_| !path.starts_with('/'));
        let path = parsed.ok_or(wrong(WRONG_PATH))?;
        if scheme == Scheme::File && path.is_root() {
            return Err(wrong("it names the whole file system"));
        }
        Ok(Location { scheme, bucket: bucket.to_owned(), path })
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::S3 => "s3",
            Scheme::Gs => "gs",
            Scheme::Az => "az",
            Scheme::File => "file",
        };
        write!(f, "{scheme}://{}", self.bucket)?;
        match self.scheme {
            _ if self.path.is_root() => Ok(()),
            Scheme::File => write!(f, "/{}", self.path.as_ref().replace('%', "%25").replace('?', "%3F")),
            Scheme::S3 | Scheme::Gs | Scheme::Az => write!(f, "/{}", self.path),
        }
    }
}

/// A URL as it may be shown: without a query, and without anything, where it has a user or a port.
fn without_secrets(url: &str) -> String {
    let (place, _) = url.split_once(['?', '#']).unwrap_or((url, ""));
    match place.split_once("://") {
        Some((scheme, rest)) if url.contains('@') || rest.split('/').next().is_some_and(|host| host.contains(':')) => {
            format!("{scheme}://…")
        }
        _ => place.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_written_alike() {
        for text in ["s3://bucket/runs/mine", "gs://bucket", "az://container/a b/c", "file:///data/run"] {
            assert_eq!(text.parse::<Location>().unwrap().to_string(), text);
        }
        for (text, meant) in [
            ("file://localhost/data/run", "file:///data/run"),
            ("file:///my%20runs/one", "file:///my runs/one"),
            ("file:///100%25/run", "file:///100%25/run"),
            ("file:///what%3F", "file:///what%3F"),
            ("s3://bucket/100%25", "s3://bucket/100%25"),
        ] {
            assert_eq!(text.parse::<Location>().unwrap().to_string(), meant);
        }
        assert_eq!("file:///100%25".parse::<Location>().unwrap().name(), "100%");
        assert_eq!("s3://bucket/run/".parse::<Location>().unwrap().to_string(), "s3://bucket/run");
        let inside = "s3://bucket".parse::<Location>().unwrap().join("segments/2").unwrap();
        assert_eq!(inside.to_string(), "s3://bucket/segments/2");
        assert_eq!((inside.name(), "gs://bucket/".parse::<Location>().unwrap().name()), ("2", "bucket"));
    }

    #[test]
    fn what_is_wrong_with_a_url_is_said_without_what_is_secret() {
        for (text, shown) in [
            ("file:///", "file:///"),
            ("s3://my bucket/run", "s3://my bucket/run"),
            ("s3:///run", "s3:///run"),
            ("s3://b/../c", "s3://b/../c"),
            ("s3://b//c", "s3://b//c"),
            ("ftp://b/c", "ftp://b/c"),
            ("s3://key:secret@b/c", "s3://…"),
            ("s3://key:sec/ret@b/c", "s3://…"),
            ("s3://key:secret/c", "s3://…"),
            ("az://b/c?sig=secret", "az://b/c"),
            ("file:///b/c?sig=secret", "file:///b/c"),
        ] {
            let refused = text.parse::<Location>().unwrap_err().to_string();
            assert!(refused.starts_with(&format!("cannot use {shown}: ")), "{refused}");
        }
    }

    #[test]
    fn paths_are_no_urls() {
        assert!(Location::is_meant("s3://b") && Location::is_meant("http://b"));
        assert!(!Location::is_meant("runs/a") && !Location::is_meant("./s3://b") && !Location::is_meant("://b"));
    }
}
