//! How figures are kept in a file: column by column, so that what goes on as it began takes next to no room.
//!
//! The values of one field of many structs lie together. Whole numbers are differences from the one before, in as few bytes
//! as they need; the keys of maps are in order. So equal values have equal bytes. Whatever bytes are read, no more memory is
//! taken than there are bytes for: each value has one at least.

mod containers;
mod numbers;
mod words;

/// Bytes that are not what was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

/// What can be stored.
pub(crate) trait Stored: Sized {
    /// Appends values.
    fn put(values: &[&Self], into: &mut Vec<u8>);

    /// Takes so many values from the beginning of what is left.
    fn take(count: usize, from: &mut Left<'_>) -> Result<Vec<Self>, Damaged>;
}

/// Bytes that have not been read.
pub(crate) struct Left<'a>(&'a [u8]);

impl Left<'_> {
    /// The next byte.
    fn byte(&mut self) -> Result<u8, Damaged> {
        let (byte, rest) = self.0.split_first().ok_or(Damaged)?;
        self.0 = rest;
        Ok(*byte)
    }

    /// The next bytes.
    fn bytes(&mut self, count: usize) -> Result<&[u8], Damaged> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Damaged)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Refuses more values than there are bytes.
    fn has(&self, count: usize) -> Result<(), Damaged> {
        if count <= self.0.len() { Ok(()) } else { Err(Damaged) }
    }
}

/// The bytes of a value.
pub(crate) fn stored<T: Stored>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    T::put(&[value], &mut bytes);
    bytes
}

/// The value that was stored as these bytes, and as all of them.
pub(crate) fn restored<T: Stored>(bytes: &[u8]) -> Result<T, Damaged> {
    let mut left = Left(bytes);
    let value = T::take(1, &mut left)?.pop();
    value.filter(|_| left.0.is_empty()).ok_or(Damaged)
}

/// Stores a struct field by field. Those behind a `;` are not stored; when it is read they are their type's default, and what
/// follows `then` says what they are.
macro_rules! fields {
    ($type:ident { $($field:ident),* $(,)? $(; $($gone:ident),*)? } $(then $finish:path)?) => {
        impl $crate::stored::Stored for $type {
            fn put(values: &[&Self], into: &mut Vec<u8>) {
                $($crate::stored::Stored::put(&values.iter().map(|value| &value.$field).collect::<Vec<_>>(), into);)*
            }

            fn take(
                count: usize,
                from: &mut $crate::stored::Left<'_>,
            ) -> Result<Vec<Self>, $crate::stored::Damaged> {
                $(let mut $field = <_ as $crate::stored::Stored>::take(count, from)?.into_iter();)*
                let row = |_| {
                    Ok($type {
                        $($field: $field.next().ok_or($crate::stored::Damaged)?,)*
                        $($($gone: Default::default(),)*)?
                    })
                };
                (0..count).map(row)$(.map(|row| row.map($finish)))?.collect()
            }
        }
    };
}
pub(crate) use fields;

/// Stores what is another type inside, and is made of that.
macro_rules! inside {
    ($($type:ident($inside:ty)),* $(,)?) => {$(
        impl $crate::stored::Stored for $type {
            fn put(values: &[&Self], into: &mut Vec<u8>) {
                $crate::stored::Stored::put(&values.iter().map(|value| &value.0).collect::<Vec<_>>(), into);
            }

            fn take(
                count: usize,
                from: &mut $crate::stored::Left<'_>,
            ) -> Result<Vec<Self>, $crate::stored::Damaged> {
                let inside: Vec<$inside> = $crate::stored::Stored::take(count, from)?;
                Ok(inside.into_iter().map($type).collect())
            }
        }
    )*};
}
pub(crate) use inside;

/// Stores one of a few values by its place among all of them.
macro_rules! one_of {
    ($($type:ident: $all:expr),* $(,)?) => {$(
        impl $crate::stored::Stored for $type {
            fn put(values: &[&Self], into: &mut Vec<u8>) {
                let place = |value: &&Self| $all.iter().position(|one| one == *value).unwrap_or($all.len()) as u8;
                into.extend(values.iter().map(place));
            }

            fn take(
                count: usize,
                from: &mut $crate::stored::Left<'_>,
            ) -> Result<Vec<Self>, $crate::stored::Damaged> {
                let place = |place: u8| $all.get(usize::from(place)).copied().ok_or($crate::stored::Damaged);
                <u8 as $crate::stored::Stored>::take(count, from)?.into_iter().map(place).collect()
            }
        }
    )*};
}
pub(crate) use one_of;

/// Stores a type as another one that says the same.
macro_rules! told_as {
    ($type:ident as $other:ty, $tell:expr, $told:expr) => {
        impl $crate::stored::Stored for $type {
            fn put(values: &[&Self], into: &mut Vec<u8>) {
                let others: Vec<$other> = values.iter().copied().map($tell).collect();
                <$other as $crate::stored::Stored>::put(&others.iter().collect::<Vec<_>>(), into);
            }

            fn take(count: usize, from: &mut $crate::stored::Left<'_>) -> Result<Vec<Self>, $crate::stored::Damaged> {
                let others = <$other as $crate::stored::Stored>::take(count, from)?;
                others.into_iter().map($told).collect::<Option<_>>().ok_or($crate::stored::Damaged)
            }
        }
    };
}
pub(crate) use told_as;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hashbrown::HashMap;
    use proptest::prelude::*;
    use stepscope_traces::{Phase, Step};

    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Row {
        step: Option<Step>,
        phase: Phase,
        value: f64,
        names: Vec<String>,
        pair: (u64, bool),
    }

    fields!(Row { step, phase, value, names, pair });

    fn rows() -> impl Strategy<Value = Vec<Row>> {
        let phase = prop::sample::select(Phase::ALL);
        let row = (any::<Option<i32>>(), phase, any::<f64>(), prop::collection::vec(".*", 0..3), any::<(u64, bool)>());
        let row = row.prop_map(|(step, phase, value, names, pair)| {
            let value = if value.is_nan() { 0.0 } else { value };
            Row { step: step.map(Step), phase, value, names, pair }
        });
        prop::collection::vec(row, 0..20)
    }

    proptest! {
        #[test]
        fn what_is_stored_is_restored(rows in rows(), table: BTreeMap<i64, Vec<u32>>) {
            let hashed: HashMap<i64, Vec<u32>> = table.iter().map(|(key, value)| (*key, value.clone())).collect();
            prop_assert_eq!(stored(&hashed), stored(&table), "hashing leaves no trace");
            prop_assert_eq!(restored(&stored(&rows)), Ok(rows));
            prop_assert_eq!(restored(&stored(&table)), Ok(table));
        }

        #[test]
        fn a_part_of_it_is_nothing(rows in rows(), cut: prop::sample::Index) {
            let bytes = stored(&rows);
            let cut = cut.index(bytes.len());
            prop_assert_eq!(restored::<Vec<Row>>(&bytes[..cut]), Err(Damaged));
            prop_assert_eq!(restored::<Vec<Row>>(&[&bytes[..], &[0]].concat()), Err(Damaged));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            if let Ok(rows) = restored::<Vec<Row>>(&bytes) {
                prop_assert!(rows.len() <= bytes.len());
            }
        }
    }

    #[test]
    fn what_goes_on_as_it_began_is_short() {
        let times: Vec<i64> = (0..1000).map(|step| 1_700_000_000_000_000_000 + 100 * step).collect();
        assert!(stored(&times).len() < 2100, "{}", stored(&times).len());
        assert_eq!(restored(&stored(&vec![i64::MIN, i64::MAX, 0])), Ok(vec![i64::MIN, i64::MAX, 0]));
    }
}
