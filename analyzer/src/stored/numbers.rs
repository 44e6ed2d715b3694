//! Numbers: whole ones as differences, in seven bits a byte.

use super::{Damaged, Left, Stored};

/// Bits of each byte that are of the number; the highest says that there are more.
const BITS: u32 = 7;
const MORE: u8 = 1 << BITS;

fn put_bits(mut bits: u64, into: &mut Vec<u8>) {
    while bits >= u64::from(MORE) {
        into.push(bits as u8 | MORE);
        bits >>= BITS;
    }
    into.push(bits as u8);
}

fn take_bits(from: &mut Left<'_>) -> Result<u64, Damaged> {
    let mut bits = 0;
    for shift in (0..u64::BITS).step_by(BITS as usize) {
        let byte = from.byte()?;
        bits |= u64::from(byte & !MORE) << shift;
        if byte & MORE == 0 {
            return Ok(bits);
        }
    }
    Err(Damaged)
}

impl Stored for i64 {
    fn put(values: &[&i64], into: &mut Vec<u8>) {
        let mut last = 0_i64;
        for value in values {
            let difference = value.wrapping_sub(last);
            // Small ones are short, whatever their sign.
            put_bits((difference << 1 ^ difference >> 63) as u64, into);
            last = **value;
        }
    }

    fn take(count: usize, from: &mut Left<'_>) -> Result<Vec<i64>, Damaged> {
        from.has(count)?;
        let mut last = 0_i64;
        let next = |_| {
            let bits = take_bits(from)?;
            last = last.wrapping_add((bits >> 1) as i64 ^ -((bits & 1) as i64));
            Ok(last)
        };
        (0..count).map(next).collect()
    }
}

macro_rules! as_i64 {
    ($($number:ty),*) => {$(
        impl Stored for $number {
            fn put(values: &[&$number], into: &mut Vec<u8>) {
                let wide: Vec<i64> = values.iter().map(|value| i64::from(**value)).collect();
                i64::put(&wide.iter().collect::<Vec<_>>(), into);
            }

            fn take(count: usize, from: &mut Left<'_>) -> Result<Vec<$number>, Damaged> {
                let narrow = |wide: i64| <$number>::try_from(wide).map_err(|_| Damaged);
                i64::take(count, from)?.into_iter().map(narrow).collect()
            }
        }
    )*};
}
as_i64!(u32, i32);

impl Stored for u64 {
    fn put(values: &[&u64], into: &mut Vec<u8>) {
        let signed: Vec<i64> = values.iter().map(|value| **value as i64).collect();
        i64::put(&signed.iter().collect::<Vec<_>>(), into);
    }

    fn take(count: usize, from: &mut Left<'_>) -> Result<Vec<u64>, Damaged> {
        Ok(i64::take(count, from)?.into_iter().map(|value| value as u64).collect())
    }
}

impl Stored for usize {
    fn put(values: &[&usize], into: &mut Vec<u8>) {
        let wide: Vec<u64> = values.iter().map(|value| **value as u64).collect();
        u64::put(&wide.iter().collect::<Vec<_>>(), into);
    }

    fn take(count: usize, from: &mut Left<'_>) -> Result<Vec<usize>, Damaged> {
        u64::take(count, from)?.into_iter().map(|value| usize::try_from(value).map_err(|_| Damaged)).collect()
    }
}

impl Stored for u8 {
    fn put(values: &[&u8], into: &mut Vec<u8>) {
        into.extend(values.iter().copied());
    }

    fn take(count: usize, from: &mut Left<'_>) -> Result<Vec<u8>, Damaged> {
        Ok(from.bytes(count)?.to_vec())
    }
}

impl Stored for bool {
    fn put(values: &[&bool], into: &mut Vec<u8>) {
        into.extend(values.iter().map(|value| u8::from(**value)));
    }

    fn take(count: usize, from: &mut Left<'_>) -> Result<Vec<bool>, Damaged> {
        let flag = |byte: &u8| if *byte < 2 { Ok(*byte == 1) } else { Err(Damaged) };
        from.bytes(count)?.iter().map(flag).collect()
    }
}

impl Stored for f64 {
    fn put(values: &[&f64], into: &mut Vec<u8>) {
        // Of round numbers, only the first bytes say something.
        values.iter().for_each(|value| put_bits(value.to_bits().swap_bytes(), into));
    }

    fn take(count: usize, from: &mut Left<'_>) -> Result<Vec<f64>, Damaged> {
        from.has(count)?;
        (0..count).map(|_| Ok(f64::from_bits(take_bits(from)?.swap_bytes()))).collect()
    }
}
