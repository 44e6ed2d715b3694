//! What a store's refusal means: who asks, what is asked for, or the way there.

use std::error::Error;

use object_store::client::{HttpError, HttpErrorKind};

use crate::{
    error::StorageError,
    location::{Location, Scheme},
};

/// A store may send a page of HTML.
const LONGEST: usize = 200;
/// Variables of which one says who asks S3. Without any, whoever runs on a machine of Amazon's is asked.
const S3_IDENTITIES: [&str; 5] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
];

/// Why there is no client, in words without secrets.
pub(crate) fn of_client(error: &object_store::Error) -> String {
    reason(error)
}

/// Sorts what went wrong, in words without secrets.
pub(crate) fn sorted(action: &'static str, place: &Location, error: &object_store::Error) -> StorageError {
    use object_store::Error as Store;
    let (location, why) = (place.to_string(), reason(error));
    if chain(error).any(|cause| cause.to_string().contains("URL scheme is not allowed")) {
        // Endpoints of other clouds and redirects, too.
        let why = "it is asked without TLS, which AWS_ALLOW_HTTP=true or AZURE_ALLOW_HTTP=true allows".into();
        return StorageError::Client { location, why };
    }
    let is_of = |kinds: &[HttpErrorKind]| {
        chain(error).any(|cause| cause.downcast_ref::<HttpError>().is_some_and(|http| kinds.contains(&http.kind())))
    };
    let text = error.to_string();
    match (error, status(&text)) {
        // Who asks is looked up at Amazon's first. A store that answers does so in XML.
        (Store::Generic { .. }, _) if place.scheme == Scheme::S3 && !text.contains("<Code>") && has_no_identity() => {
            StorageError::NoCredentials { action, location, why }
        }
        (Store::PermissionDenied { .. } | Store::Unauthenticated { .. }, _)
        | (Store::Generic { .. }, Some(401 | 403)) => StorageError::Refused { action, location, why },
        (Store::NotFound { .. } | Store::Generic { .. }, Some(404)) if is_about_bucket(&text) => {
            StorageError::NoBucket { action, location }
        }
        (Store::NotFound { .. }, _) => StorageError::Missing { action, location },
        (Store::Generic { .. }, _) if is_of(&[HttpErrorKind::Connect, HttpErrorKind::Timeout]) => {
            StorageError::Unreachable { action, location, why }
        }
        _ => StorageError::Failed { action, location, why },
    }
}

fn has_no_identity() -> bool {
    S3_IDENTITIES.iter().all(|name| std::env::var_os(name).is_none_or(|value| value.is_empty()))
}

/// In the words of S3, Azure and Google.
fn is_about_bucket(text: &str) -> bool {
    ["NoSuchBucket", "ContainerNotFound", "bucket does not exist"].iter().any(|words| text.contains(words))
}

fn chain(error: &object_store::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(Some(error as &(dyn Error + 'static)), |error| (*error).source())
}

/// The status of an answer. It is known only by the words of the error.
fn status(text: &str) -> Option<u16> {
    text.split_once("status code: ")?.1.get(..3)?.parse().ok()
}

/// The last cause, which is the first: what the store or the system said.
fn reason(error: &object_store::Error) -> String {
    let last = chain(error).last().map_or_else(String::new, ToString::to_string);
    shortened(&last)
}

/// The code and the message of an answer in XML, or the words as they are; without queries, in which tokens may be.
fn shortened(text: &str) -> String {
    let between = |tag: &str| {
        let (_, rest) = text.split_once(&format!("<{tag}>"))?;
        rest.split_once(&format!("</{tag}>")).map(|(inside, _)| inside.trim().to_owned())
    };
    let said = match (between("Code"), between("Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code,
        (None, _) => text.split_whitespace().map(without_query).collect::<Vec<_>>().join(" "),
    };
    said.chars().take(LONGEST).collect::<String>().trim_end_matches(['.', ':', ' ']).to_owned()
}

fn without_query(word: &str) -> &str {
    word.split_once('?').filter(|(before, _)| before.contains("://")).map_or(word, |(before, _)| before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_quoted_in_a_few_words() {
        let answer = "status 403: <?xml version=\"1.0\"?><Error><Code>InvalidAccessKeyId</Code><Message>The key is \
                      unknown.</Message><AWSAccessKeyId>AKIA</AWSAccessKeyId></Error>";
        assert_eq!(shortened(answer), "InvalidAccessKeyId: The key is unknown");
        assert_eq!(status("Server returned non-2xx status code: 403 Forbidden: no"), Some(403));
        assert_eq!(status("no answer"), None);
        assert_eq!(shortened("tcp connect error"), "tcp connect error");
        assert_eq!(shortened("GET https://a.net/b?sig=secret failed\n"), "GET https://a.net/b failed");
        assert_eq!(shortened(&"x".repeat(1000)).len(), LONGEST);
    }
}
