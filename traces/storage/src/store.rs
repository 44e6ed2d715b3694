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
    patience::Patience,
    refusal, settings,
};

/// Requests that fail for reasons that pass are made again, so often and for so long.
const RETRIES: usize = 5;
const RETRY_FOR: Duration = Duration::from_secs(60);
/// A run has a few objects for each rank.
const MOST_OBJECTS: usize = 200_000;

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
    patience: Patience,
}

impl Store {
    pub(crate) fn open(place: &Location) -> Result<Store, StorageError> {
        let cannot = |why: String| StorageError::Client { location: place.to_string(), why };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| cannot(error.to_string()))?;
        let objects = client(place)?.map_err(|error| cannot(refusal::of_client(&error)))?;
        Ok(Store { runtime, objects, place: place.clone(), patience: Patience::default() })
    }

    /// The same, waiting no longer than somebody has patience.
    pub(crate) fn with(self, patience: &Patience) -> Store {
        Store { patience: patience.clone(), ..self }
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
        let listed = self.ask("read", &self.place, listed)?;
        let too_many = || StorageError::TooMany { location: self.place.to_string(), most: MOST_OBJECTS };
        let mut objects = listed.ok_or_else(too_many)?;
        objects.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(objects)
    }

    /// The object that is at the place itself.
    pub(crate) fn itself(&self) -> Result<Version, StorageError> {
        let asked = self.ask("read", &self.place, self.objects.head(&self.place.path))?;
        Ok(Version::of(&asked))
    }

    /// All of a small object.
    pub(crate) fn read(&self, name: &str) -> Result<Vec<u8>, StorageError> {
        let read = async { self.objects.get(&self.path_of(name)?).await?.bytes().await };
        Ok(self.ask("read", &self.place_of(name), read)?.to_vec())
    }

    /// Puts an object in the place of any that has its name.
    pub(crate) fn put(&self, name: &str, content: Vec<u8>) -> Result<(), StorageError> {
        let put = async { self.objects.put(&self.path_of(name)?, PutPayload::from(content)).await };
        self.ask("upload to", &self.place, put).map(drop)
    }

    /// Puts an object where there is none of its name. Whether there was none.
    pub(crate) fn put_new(&self, name: &str, content: Vec<u8>) -> Result<bool, StorageError> {
        let put = async {
            let path = self.path_of(name)?;
            match self.objects.put_opts(&path, PutPayload::from(content), PutMode::Create.into()).await {
                Ok(_) => Ok(true),
                Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        };
        self.ask("upload to", &self.place, put)
    }

    /// Asks for an object as it is now.
    pub(crate) async fn get(&self, name: &str) -> Result<(Version, GetResult), object_store::Error> {
        let result = self.objects.get(&self.path_of(name)?).await?;
        Ok((Version::of(&result.meta), result))
    }

    /// Waits for several things at a time.
    pub(crate) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Where the object of a name is; the place itself, for an empty one.
    pub(crate) fn place_of(&self, name: &str) -> Location {
        let path = self.path_of(name).unwrap_or_else(|_| self.place.path.clone());
        Location { path, ..self.place.clone() }
    }

    /// Waits for an answer, or until nobody has patience any more.
    fn ask<T>(
        &self,
        action: &'static str,
        place: &Location,
        work: impl Future<Output = Result<T, object_store::Error>>,
    ) -> Result<T, StorageError> {
        let location = || place.to_string();
        let late = || StorageError::Unreachable { action, location: location(), why: "no answer in time".into() };
        let answered = self.runtime.block_on(self.patience.wait_for(work)).ok_or_else(late)?;
        answered.map_err(|error| refusal::sorted(action, place, &error))
    }

    /// The object of a name, as the store writes it: nothing of it is encoded here.
    fn path_of(&self, name: &str) -> Result<ObjectPath, object_store::path::Error> {
        self.place.inside(name)
    }

    fn name_of(&self, path: &ObjectPath) -> Option<String> {
        let parts = path.prefix_match(&self.place.path)?;
        let parts: Vec<String> = parts.map(|part| part.as_ref().to_owned()).collect();
        (!parts.is_empty()).then(|| parts.join("/"))
    }
}

/// A client that is set up as the environment says, as other tools of the store are.
fn client(place: &Location) -> Result<Result<Box<dyn ObjectStore>, object_store::Error>, StorageError> {
    static TLS: Once = Once::new();
    // Somebody else's choice does, too.
    TLS.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    let variables = match place.scheme {
        Scheme::S3 => settings::variables("AWS_", None)?,
        Scheme::Gs => settings::variables("GOOGLE_", Some(("SERVICE_ACCOUNT", "service_account")))?,
        Scheme::Az => settings::variables("AZURE_", Some(("IDENTITY_ENDPOINT", "msi_endpoint")))?,
        Scheme::File => Vec::new(),
    };
    Ok(configured(place, &variables))
}

fn configured(place: &Location, variables: &[(String, String)]) -> Result<Box<dyn ObjectStore>, object_store::Error> {
    let retries = RetryConfig { backoff: BackoffConfig::default(), max_retries: RETRIES, retry_timeout: RETRY_FOR };
    let is_plain = settings::is_plain(variables);
    let bucket = &place.bucket;
    // Names that the library does not know are for other tools.
    macro_rules! set_up {
        ($builder:ty) => {
            variables.iter().fold(<$builder>::new(), |builder, (name, value)| match name.parse() {
                Ok(key) => builder.with_config(key, value),
                Err(_) => builder,
            })
        };
    }
    Ok(match place.scheme {
        Scheme::S3 => {
            let builder = set_up!(AmazonS3Builder).with_bucket_name(bucket).with_retry(retries);
            Box::new(if is_plain { builder.with_allow_http(true) } else { builder }.build()?)
        }
        Scheme::Gs => {
            Box::new(set_up!(GoogleCloudStorageBuilder).with_bucket_name(bucket).with_retry(retries).build()?)
        }
        Scheme::Az => {
            let builder = set_up!(MicrosoftAzureBuilder).with_container_name(bucket).with_retry(retries);
            Box::new(if is_plain { builder.with_allow_http(true) } else { builder }.build()?)
        }
        Scheme::File => Box::new(LocalFileSystem::new()),
    })
}
