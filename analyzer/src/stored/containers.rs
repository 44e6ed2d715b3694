//! What holds other values: how many each one has comes first, then the values of all of them.

use std::{array, collections::BTreeMap, hash::Hash};

use hashbrown::HashMap;

use super::{Damaged, Left, Stored};

impl<T: Stored> Stored for Option<T> {
    fn put(values: &[&Option<T>], into: &mut Vec<u8>) {
        into.extend(values.iter().map(|value| u8::from(value.is_some())));
        T::put(&values.iter().filter_map(|value| value.as_ref()).collect::<Vec<_>>(), into);
    }

    fn take(count: usize, from: &mut Left<'_>) -> Result<Vec<Option<T>>, Damaged> {
        let there = bool::take(count, from)?;
        let mut some = T::take(there.iter().filter(|there| **there).count(), from)?.into_iter();
        Ok(there.into_iter().map(|there| if there { some.next() } else { None }).collect())
    }
}

/// How many values each of some containers has.
fn put_lengths(lengths: impl Iterator<Item = usize>, into: &mut Vec<u8>) {
    let lengths: Vec<usize> = lengths.collect();
    usize::put(&lengths.iter().collect::<Vec<_>>(), into);
}

/// The same, and how many they are together.
fn take_lengths(count: usize, from: &mut Left<'_>) -> Result<(Vec<usize>, usize), Damaged> {
    let lengths = usize::take(count, from)?;
    let all = lengths.iter().try_fold(0_usize, |sum, length| sum.checked_add(*length)).ok_or(Damaged)?;
    from.has(all)?;
    Ok((lengths, all))
}

impl<T: Stored> Stored for Vec<T> {
    fn put(values: &[&Vec<T>], into: &mut Vec<u8>) {
        put_lengths(values.iter().map(|items| items.len()), into);
        T::put(&values.iter().flat_map(|items| items.iter()).collect::<Vec<_>>(), into);
    }

    fn take(count: usize, from: &mut Left<'_>) -> Result<Vec<Vec<T>>, Damaged> {
        let (lengths, all) = take_lengths(count, from)?;
        let mut items = T::take(all, from)?.into_iter();
        Ok(lengths.into_iter().map(|length| items.by_ref().take(length).collect()).collect())
    }
}

impl Stored for String {
    fn put(values: &[&String], into: &mut Vec<u8>) {
        put_lengths(values.iter().map(|text| text.len()), into);
        values.iter().for_each(|text| into.extend_from_slice(text.as_bytes()));
    }

    fn take(count: usize, from: &mut Left<'_>) -> Result<Vec<String>, Damaged> {
        let (lengths, _) = take_lengths(count, from)?;
        let text = |length: usize| String::from_utf8(from.bytes(length)?.to_vec()).map_err(|_| Damaged);
        lengths.into_iter().map(text).collect()
    }
}

/// Takes the keys and values of some maps, in order.
fn take_pairs<K: Stored, V: Stored, M: FromIterator<(K, V)>>(
    count: usize,
    from: &mut Left<'_>,
) -> Result<Vec<M>, Damaged> {
    let (lengths, all) = take_lengths(count, from)?;
    let mut pairs = K::take(all, from)?.into_iter().zip(V::take(all, from)?);
    Ok(lengths.into_iter().map(|length| pairs.by_ref().take(length).collect()).collect())
}

fn put_pairs<'a, K: Stored + 'a, V: Stored + 'a>(maps: &[Vec<(&'a K, &'a V)>], into: &mut Vec<u8>) {
    put_lengths(maps.iter().map(Vec::len), into);
    K::put(&maps.iter().flatten().map(|(key, _)| *key).collect::<Vec<_>>(), into);
    V::put(&maps.iter().flatten().map(|(_, value)| *value).collect::<Vec<_>>(), into);
}

impl<K: Stored + Ord, V: Stored> Stored for BTreeMap<K, V> {
    fn put(values: &[&BTreeMap<K, V>], into: &mut Vec<u8>) {
        put_pairs(&values.iter().map(|map| map.iter().collect()).collect::<Vec<_>>(), into);
    }

    fn take(count: usize, from: &mut Left<'_>) -> Result<Vec<BTreeMap<K, V>>, Damaged> {
        take_pairs(count, from)
    }
}

impl<K: Stored + Ord + Hash, V: Stored> Stored for HashMap<K, V> {
    fn put(values: &[&HashMap<K, V>], into: &mut Vec<u8>) {
        let mut maps: Vec<Vec<(&K, &V)>> = values.iter().map(|map| map.iter().collect()).collect();
        maps.iter_mut().for_each(|pairs| pairs.sort_by_key(|(key, _)| *key));
        put_pairs(&maps, into);
    }

    fn take(count: usize, from: &mut Left<'_>) -> Result<Vec<HashMap<K, V>>, Damaged> {
        take_pairs(count, from)
    }
}

impl<T: Stored, const N: usize> Stored for [T; N] {
    fn put(values: &[&[T; N]], into: &mut Vec<u8>) {
        (0..N).for_each(|place| T::put(&values.iter().map(|array| &array[place]).collect::<Vec<_>>(), into));
    }

    fn take(count: usize, from: &mut Left<'_>) -> Result<Vec<[T; N]>, Damaged> {
        let mut columns = (0..N).map(|_| Ok(T::take(count, from)?.into_iter())).collect::<Result<Vec<_>, Damaged>>()?;
        let row = |_| {
            let row: [Option<T>; N] = array::from_fn(|place| columns[place].next());
            let row: Option<Vec<T>> = row.into_iter().collect();
            row.and_then(|row| row.try_into().ok()).ok_or(Damaged)
        };
        (0..count).map(row).collect()
    }
}

macro_rules! tuples {
    ($(($($name:ident: $part:tt),*)),*) => {$(
        impl<$($name: Stored),*> Stored for ($($name,)*) {
            fn put(values: &[&Self], into: &mut Vec<u8>) {
                $($name::put(&values.iter().map(|value| &value.$part).collect::<Vec<_>>(), into);)*
            }

            fn take(count: usize, from: &mut Left<'_>) -> Result<Vec<Self>, Damaged> {
                let mut columns = ($($name::take(count, from)?.into_iter(),)*);
                (0..count).map(|_| Ok(($(columns.$part.next().ok_or(Damaged)?,)*))).collect()
            }
        }
    )*};
}
tuples!((A: 0, B: 1), (A: 0, B: 1, C: 2), (A: 0, B: 1, C: 2, D: 3));
