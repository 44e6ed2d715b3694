//! How a note stands in `rank.json`.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// What a note is made of there.
pub(super) trait NoteField: Sized {
    /// Takes the note by its key. What is not understood stays.
    fn take(map: &mut Map<String, Value>, key: &str) -> Option<Self>;

    /// Writes it, in place of an earlier one.
    fn put(&self, map: &mut Map<String, Value>, key: &str);
}

/// Takes a note that is written as a value of its own, by its key.
pub(super) fn take_value<T: DeserializeOwned>(map: &mut Map<String, Value>, key: &str) -> Option<T> {
    let note = T::deserialize(map.get(key)?).ok()?;
    map.remove(key);
    Some(note)
}

/// Writes a note as a value of its own.
pub(super) fn put_value(note: &impl Serialize, map: &mut Map<String, Value>, key: &str) {
    // Numbers, texts and lists of them can always be written.
    if let Ok(written) = serde_json::to_value(note) {
        map.insert(key.to_owned(), written);
    }
}

/// Notes that are written as values of their own.
macro_rules! values {
    ($($note:ty),*) => {$(
        impl super::field::NoteField for $note {
            fn take(map: &mut serde_json::Map<String, serde_json::Value>, key: &str) -> Option<$note> {
                super::field::take_value(map, key)
            }

            fn put(&self, map: &mut serde_json::Map<String, serde_json::Value>, key: &str) {
                super::field::put_value(self, map, key);
            }
        }
    )*};
}

pub(super) use values;

/// Notes that are written as values of their own while there is anything to say.
macro_rules! values_while_any {
    ($($note:ty),*) => {$(
        impl super::field::NoteField for $note {
            fn take(map: &mut serde_json::Map<String, serde_json::Value>, key: &str) -> Option<$note> {
                super::field::take_value(map, key)
            }

            fn put(&self, map: &mut serde_json::Map<String, serde_json::Value>, key: &str) {
                if *self == <$note>::default() {
                    map.remove(key);
                } else {
                    super::field::put_value(self, map, key);
                }
            }
        }
    )*};
}

pub(super) use values_while_any;

/// A note that is one text.
pub(super) trait NoteText: Sized {
    fn read(text: &str) -> Option<Self>;

    fn write(&self) -> String;
}

impl<T: NoteText> NoteField for T {
    fn take(map: &mut Map<String, Value>, key: &str) -> Option<T> {
        let note = T::read(map.get(key)?.as_str()?)?;
        map.remove(key);
        Some(note)
    }

    fn put(&self, map: &mut Map<String, Value>, key: &str) {
        map.insert(key.to_owned(), self.write().into());
    }
}

impl NoteText for String {
    fn read(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    fn write(&self) -> String {
        self.clone()
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl NoteText for $number {
            fn read(text: &str) -> Option<$number> {
                text.parse().ok()
            }

            fn write(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

numbers!(u32, u64, i64);
