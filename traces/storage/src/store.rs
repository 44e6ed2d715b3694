//! A client of a store. Each call waits for its answer, and transient failures are tried again.

use std::{sync::Once, time::Duration};

use futures_util::TryStreamExt;
use object_store::{
    BackoffConfig, GetResult, ObjectStore, ObjectStoreExt, PutMode, PutPayload, RetryConfig, aws::AmazonS3Builder,
    azure::MicrosoftAzureBuilder, gcp::GoogleCloudStorageBuilder, local::LocalFileSystem, path::Path as ObjectPath,
};
use tokio::runtime::Runtime;

use crate::{
    error::StorageError,
    location::{Location, Scheme},
    refusal,
};

/// Requests that fail for reasons that pass are made again, so often and for so long.
const RETRIES: usize = 5;
const RETRY_FOR: Duration = Duration::from_secs(60);
/// A run has a few objects for each rank.
const MOST_OBJECTS: usize = 200_000;
/// Names the endpoint of a store that speaks S3.
const ENDPOINTS: [&str; 2] = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"];

/// An object that is there.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    /// Its name, from the place that was opened.
    pub(crate) name: String,
    pub(crate) version: Version,
}

/// Which content an object has.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Version {
    pub(crate) bytes: u64,
    /// What changes with the content.
    tag: String,
    /// When it came to be, in milliseconds of the time of day.
    pub(crate) modified_ms: i64,
}

impl Version {
    fn of(meta: &object_store::ObjectMeta) -> Version {
        let modified_ms = meta.last_modified.timestamp_millis();
        let tag = meta.e_tag.clone().unwrap_or_else(|| modified_ms.to_string());
        Version { bytes: meta.size, tag, modified_ms }
    }
}

/// A place in a store.
pub(crate) struct Store {
    runtime: Runtime,
    objects: Box<dyn ObjectStore>,
    place: Location,
}

impl Store {
    pub(crate) fn open(place: &Location) -> Result<Store, StorageError> {
        let cannot = |why: String| StorageError::Client { location: place.to_string(), why };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| cannot(error.to_string()))?;
        let objects = client(place).map_err(|error| cannot(error.to_string()))?;
        Ok(Store { runtime, objects, place: place.clone() })
    }

    pub(crate) fn place(&self) -> &Location {
        &self.place
    }

    /// All objects under the place, by name.
    pub(crate) fn list(&self) -> Result<Vec<Object>, StorageError> {
        let listed = async {
            let mut objects = Vec::new();
            let mut listing = self.objects.list(Some(&self.place.path));
            while let Some(meta) = listing.try_next().await? {
                if objects.len() >= MOST_OBJECTS {
                    return Ok(None);
                }
                objects.extend(self.name_of(&meta.location).map(|name| Object { name, version: Version::of(&meta) }));
            }
            Ok(Some(objects))
        };
        let listed = self.runtime.block_on(listed).map_err(|error| refusal::sorted("read", &self.place, &error))?;
        let too_many = || StorageError::TooMany { location: self.place.to_string(), most: MOST_OBJECTS };
        let mut objects = listed.ok_or_else(too_many)?;
        objects.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(objects)
    }

    /// The object that is at the place itself.
    pub(crate) fn itself(&self) -> Result<Version, StorageError> {
        let asked = self.runtime.block_on(self.objects.head(&self.place.path));
        asked.map(|meta| Version::of(&meta)).map_err(|error| refusal::sorted("read", &self.place, &error))
    }

    /// All of a small object.
    pub(crate) fn read(&self, name: &str) -> Result<Vec<u8>, StorageError> {
        let read = async { self.objects.get(&self.path_of(name)).await?.bytes().await };
        let bytes = self.runtime.block_on(read).map_err(|error| refusal::sorted("read", &self.place, &error))?;
        Ok(bytes.to_vec())
    }

    /// Puts an object in the place of any that has its name.
    pub(crate) fn put(&self, name: &str, content: Vec<u8>) -> Result<(), StorageError> {
        let put = self.runtime.block_on(self.objects.put(&self.path_of(name), PutPayload::from(content)));
        put.map(drop).map_err(|error| refusal::sorted("upload to", &self.place, &error))
    }

    /// Puts an object where there is none of its name. Whether there was none.
    pub(crate) fn put_new(&self, name: &str, content: Vec<u8>) -> Result<bool, StorageError> {
        let path = self.path_of(name);
        let put = self.objects.put_opts(&path, PutPayload::from(content), PutMode::Create.into());
        match self.runtime.block_on(put) {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(refusal::sorted("upload to", &self.place, &error)),
        }
    }

    /// Asks for an object as it is now.
    pub(crate) async fn get(&self, name: &str) -> Result<(Version, GetResult), object_store::Error> {
        let result = self.objects.get(&self.path_of(name)).await?;
        Ok((Version::of(&result.meta), result))
    }

    /// Waits for several things at a time.
    pub(crate) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// The object of a name; the place itself, for an empty one.
    fn path_of(&self, name: &str) -> ObjectPath {
        name.split('/').filter(|part| !part.is_empty()).fold(self.place.path.clone(), ObjectPath::join)
    }

    fn name_of(&self, path: &ObjectPath) -> Option<String> {
        let parts = path.prefix_match(&self.place.path)?;
        let parts: Vec<String> = parts.map(|part| part.as_ref().to_owned()).collect();
        (!parts.is_empty()).then(|| parts.join("/"))
    }
}

/// A client that is set up as the environment says, as other tools of the store are.
fn client(place: &Location) -> Result<Box<dyn ObjectStore>, object_store::Error> {
    static TLS: Once = Once::new();
    // Somebody else's choice does, too.
    TLS.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    // Whoever names an endpoint without TLS means it.
    let is_plain = ENDPOINTS
        .iter()
        .find_map(std::env::var_os)
        .is_some_and(|url| url.to_str().is_some_and(|url| url.starts_with("http://")));
    let retries = RetryConfig { backoff: BackoffConfig::default(), max_retries: RETRIES, retry_timeout: RETRY_FOR };
    let bucket = &place.bucket;
    Ok(match place.scheme {
        Scheme::S3 => {
            let builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retries);
            Box::new(if is_plain { builder.with_allow_http(true) } else { builder }.build()?)
        }
        Scheme::Gs => {
            Box::new(GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket).with_retry(retries).build()?)
        }
        Scheme::Az => {
            Box::new(MicrosoftAzureBuilder::from_env().with_container_name(bucket).with_retry(retries).build()?)
        }
        Scheme::File => Box::new(LocalFileSystem::new()),
    })
}
