//! What the environment says of stores, checked before the library sees it: some of it would end the program there.

use reqwest::Url;

use crate::error::StorageError;

/// An endpoint of a store of a cloud, where it is set: one without TLS is meant as it is written.
const ENDPOINTS: [&str; 5] =
    ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"];
/// Other URLs.
const URLS: [&str; 6] = [
    "AWS_ENDPOINT_URL_STS",
    "AWS_METADATA_ENDPOINT",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "GOOGLE_BASE_URL",
    "AZURE_MSI_ENDPOINT",
    "msi_endpoint",
];

/// The variables of a store, in lower case: those whose names begin alike, and another one by the name that it has among
/// them. White space around values is not part of them, and empty ones are not set.
pub(crate) fn variables(prefix: &str, other: Option<(&str, &str)>) -> Result<Vec<(String, String)>, StorageError> {
    let other_value = other.and_then(|(name, known)| Some((known.to_owned(), std::env::var_os(name)?)));
    let all = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let theirs = all.filter(|(name, _)| name.starts_with(prefix)).chain(other_value);
    let mut set: Vec<(String, String)> = Vec::new();
    for (name, value) in theirs {
        let wrong = |why| StorageError::Setting { variable: name.clone(), why };
        let value = value.to_str().ok_or(wrong("it is not UTF-8"))?.trim();
        if value.is_empty() {
            continue;
        }
        check(&name, value).map_err(wrong)?;
        set.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let has = |name: &str| set.iter().any(|(set, _)| set == name);
    for (one, other, missing) in [
        ("aws_access_key_id", "aws_secret_access_key", "AWS_SECRET_ACCESS_KEY"),
        ("aws_secret_access_key", "aws_access_key_id", "AWS_ACCESS_KEY_ID"),
    ] {
        if has(one) && !has(other) {
            let why = "it is not set, and the other half of the key is";
            return Err(StorageError::Setting { variable: missing.into(), why });
        }
    }
    Ok(set)
}

/// Whether whoever set these has a store without TLS.
pub(crate) fn is_plain(variables: &[(String, String)]) -> bool {
    let is_endpoint = |name: &str| ENDPOINTS.iter().any(|endpoint| endpoint.eq_ignore_ascii_case(name));
    variables.iter().any(|(name, value)| is_endpoint(name) && value.starts_with("http://"))
}

fn check(name: &str, value: &str) -> Result<(), &'static str> {
    if value.chars().any(char::is_control) {
        return Err("it has a line break or another control character in it");
    }
    if ENDPOINTS.contains(&name) || URLS.contains(&name) {
        return check_url(value);
    }
    let is_region = name.starts_with("AWS_") && name.ends_with("REGION");
    if is_region && !value.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-') {
        return Err("a region has only letters, digits and dashes, as in us-east-1");
    }
    Ok(())
}

fn check_url(value: &str) -> Result<(), &'static str> {
    if !value.starts_with("http://") && !value.starts_with("https://") {
        return Err("it does not begin with https:// or http://");
    }
    let url = Url::parse(value).map_err(|_| "it is not a URL with a host and a port from 1 to 65535")?;
    let is_plain = |text: &str| text.chars().all(|letter| letter.is_ascii_graphic());
    match url.host_str() {
        Some(_) if is_plain(value) => Ok(()),
        Some(_) => Err("it has a space or another character that URLs do not have"),
        None => Err("it names no host"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_that_name_no_store_are_refused() {
        let endpoint = |value| check("AWS_ENDPOINT_URL", value);
        for value in ["http://127.0.0.1:9000", "https://s3.example.com/base", "http://[::1]:9000", "http://localhost"] {
            assert_eq!(endpoint(value), Ok(()), "{value}");
        }
        for value in
            ["127.0.0.1:5005", "http://127.0.0.1:99999", "http://no such host", "http://[::1", "http://", "s3://bucket"]
        {
            assert!(endpoint(value).is_err(), "{value}");
        }
    }

    #[test]
    fn other_settings_are_words() {
        assert!(check("AWS_SESSION_TOKEN", "a\nb").is_err() && check("AWS_REGION", "us east").is_err());
        assert!(check("AWS_REGION", "us-east-1").is_ok() && check("AWS_SECRET_ACCESS_KEY", "a/b+c=").is_ok());
    }

    #[test]
    fn only_an_endpoint_of_the_store_says_that_there_is_no_tls() {
        let plain = |name: &str| is_plain(&[(name.to_owned(), "http://127.0.0.1".to_owned())]);
        assert!(plain("aws_endpoint_url") && plain("azure_endpoint"));
        assert!(!plain("aws_metadata_endpoint"));
    }
}
