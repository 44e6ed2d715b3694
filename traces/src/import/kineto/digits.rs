//! Runs of digits, eight at a time, and the numbers that they are.

/// A number of so many digits fits.
const MOST_DIGITS: usize = 19;

/// What a number is multiplied by where so many digits follow it.
const POWERS: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// A byte in each of eight places.
const fn eight(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// The digits that a text begins with: how many, and the number that they are, if it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeadingDigits {
    pub(super) count: usize,
    number: u64,
}

impl LeadingDigits {
    #[inline(always)]
    pub(super) fn of(text: &[u8]) -> LeadingDigits {
        let (mut count, mut number) = (0, 0_u64);
        while let Some(next) = text[count..].first_chunk() {
            // A digit becomes its value, and whatever else at least ten.
            let values = u64::from_le_bytes(*next) ^ eight(b'0');
            let others = (values | ((values & eight(0x7f)) + eight(0x80 - 10))) & eight(0x80);
            let more = (others.trailing_zeros() / 8) as usize;
            // Those that are there come last, behind zeros.
            let digits = values.checked_shl(64 - 8 * more as u32).unwrap_or_default();
            number = number.wrapping_mul(POWERS[more]).wrapping_add(number_of_eight(digits));
            count += more;
            if others != 0 {
                return LeadingDigits { count, number };
            }
        }
        for digit in text[count..].iter().map(|byte| byte.wrapping_sub(b'0')).take_while(|digit| *digit < 10) {
            (count, number) = (count + 1, number.wrapping_mul(10).wrapping_add(digit.into()));
        }
        LeadingDigits { count, number }
    }

    /// The number that they are; none where there are none, or too many.
    #[inline(always)]
    pub(super) fn number(self) -> Option<u64> {
        (1..=MOST_DIGITS).contains(&self.count).then_some(self.number)
    }
}

/// The number that digits are; none where this is anything else, or too long.
#[inline]
pub(super) fn number_of_digits(text: &[u8]) -> Option<u64> {
    let digits = LeadingDigits::of(text);
    digits.number().filter(|_| digits.count == text.len())
}

/// The number that three digits are; none where one of them is anything else.
#[inline(always)]
pub(super) fn number_of_three(text: [u8; 3]) -> Option<u64> {
    let [hundreds, tens, ones] = text.map(|byte| u64::from(byte.wrapping_sub(b'0')));
    (hundreds < 10 && tens < 10 && ones < 10).then_some(hundreds * 100 + tens * 10 + ones)
}

/// The number that eight digits are: first each two of them, then each four, then all.
#[inline(always)]
fn number_of_eight(digits: u64) -> u64 {
    let twos = (digits * 10 + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (twos * 100 + (twos >> 16)) & 0x0000_ffff_0000_ffff;
    (fours * 10_000 + (fours >> 32)) & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn digits_are_what_they_are_one_by_one(digits in "[0-9]{0,30}", rest in prop::collection::vec(any::<u8>(), 0..12)) {
            let text = [digits.as_bytes(), &rest].concat();
            let expected = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
            prop_assert_eq!(LeadingDigits::of(&text).count, expected);
        }

        #[test]
        fn numbers_are_what_parsing_says(text in "[0-9]{0,19}[0-9a/:-]?") {
            let parsed = text.parse().ok().filter(|_| text.len() <= MOST_DIGITS);
            prop_assert_eq!(number_of_digits(text.as_bytes()), parsed);
        }

        #[test]
        fn three_digits_are_what_any_are(text in any::<[u8; 3]>(), digits in "[0-9]{3}") {
            prop_assert_eq!(number_of_three(text), number_of_digits(&text));
            let digits = *digits.as_bytes().first_chunk().unwrap();
            prop_assert_eq!(number_of_three(digits), number_of_digits(&digits));
        }
    }
}
