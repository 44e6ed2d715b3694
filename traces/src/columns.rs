//! Typed columns: what a table holds in memory, and what of it goes to a file.
//!
//! A value is stored as the plain number Arrow has for it, so a batch is written and read by copying whole buffers.

use arrow_buffer::BooleanBufferBuilder;
use arrow_schema::DataType;
use bytemuck::Pod;

/// A fixed-width number as it stands in a file.
pub trait Number: Pod + Default + PartialEq + std::fmt::Debug {
    /// Its Arrow type.
    const TYPE: DataType;
}

macro_rules! numbers {
    ($($number:ty = $type:ident),*) => {$(
        impl Number for $number {
            const TYPE: DataType = DataType::$type;
        }

        impl Cell for $number {
            type Number = $number;

            fn data_type() -> DataType {
                DataType::$type
            }

            fn to_number(self) -> $number {
                self
            }

            fn from_number(number: $number) -> Option<Self> {
                Some(number)
            }
        }
    )*};
}

/// What one cell of a column holds, over the number that stores it.
pub trait Cell: Copy {
    /// The number that stores it.
    type Number: Number;

    /// The Arrow type of the column.
    fn data_type() -> DataType;

    /// The words behind the numbers, for a dictionary column; none for a plain one.
    fn words() -> Vec<&'static str> {
        Vec::new()
    }

    /// Whether no value is like the ones before it, as with times: such a column is compressed in another way.
    fn is_noise() -> bool {
        false
    }

    /// The number for this value.
    fn to_number(self) -> Self::Number;

    /// The value for a number, if the number has a meaning.
    fn from_number(number: Self::Number) -> Option<Self>;
}

numbers!(u8 = UInt8, u16 = UInt16, u32 = UInt32, u64 = UInt64, i16 = Int16, i32 = Int32, i64 = Int64, f64 = Float64);

/// The Arrow type of a column of words.
pub(crate) fn dictionary_type() -> DataType {
    DataType::Dictionary(Box::new(DataType::UInt8), Box::new(DataType::Utf8))
}

/// Maps a field's type to the column that holds it: `T` to [`Column`], `Option<T>` to [`OptionalColumn`].
pub trait Field: Copy {
    /// The column.
    type Column: FieldColumn<Value = Self>;
}

impl<C: Cell> Field for C {
    type Column = Column<C>;
}

impl<C: Cell> Field for Option<C> {
    type Column = OptionalColumn<C>;
}

/// A column that rows are pushed to and read from.
pub trait FieldColumn: Default {
    /// What a row has here.
    type Value;

    /// Appends one value.
    fn push(&mut self, value: Self::Value);

    /// The value in a row. Panics past the end, as slices do.
    fn get(&self, row: usize) -> Self::Value;
}

/// One column as buffers of an Arrow record batch.
pub(crate) trait Buffers {
    /// What kind of column it is.
    fn kind(&self) -> ColumnKind;

    /// How many rows have no value.
    fn null_count(&self) -> usize;

    /// The buffers in Arrow's order, the validity bitmap first (empty when every row has a value).
    fn buffers(&self) -> Vec<&[u8]>;

    /// Appends `rows` rows whose buffers are read through `source`; on an error the column is left in any length and
    /// must be truncated.
    fn append(&mut self, rows: usize, source: &mut dyn BufferSource) -> Result<(), Malformed>;

    /// Appends `rows` rows of a file that is older than the column.
    fn append_unknown(&mut self, _rows: usize) -> Result<(), Malformed> {
        Err(Malformed)
    }

    /// Makes room for more rows.
    fn reserve(&mut self, rows: usize);

    /// Keeps the first `rows` rows.
    fn truncate(&mut self, rows: usize);
}

/// What a file needs to know of a column besides its rows.
pub(crate) struct ColumnKind {
    /// The Arrow type.
    pub(crate) data_type: DataType,
    /// The words behind the numbers of a dictionary column.
    pub(crate) words: Vec<&'static str>,
    /// Whether no value is like the ones before it.
    pub(crate) is_noise: bool,
    /// Whether rows may have no value.
    pub(crate) nullable: bool,
}

impl ColumnKind {
    fn of<C: Cell>(nullable: bool) -> ColumnKind {
        ColumnKind { data_type: C::data_type(), words: C::words(), is_noise: C::is_noise(), nullable }
    }
}

/// Where a column reads the buffers of a batch from, one after another.
pub(crate) trait BufferSource {
    /// How long the next buffer is once uncompressed.
    fn next_length(&self) -> Result<usize, Malformed>;

    /// Moves on without reading the next buffer.
    fn skip(&mut self) -> Result<(), Malformed>;

    /// Fills `into`, which must have the length of the next buffer, and moves on.
    fn next_into(&mut self, into: &mut [u8]) -> Result<(), Malformed>;
}

/// A batch whose parts do not fit together.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// A column in which every row has a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Column<C: Cell> {
    numbers: Vec<C::Number>,
}

impl<C: Cell> Default for Column<C> {
    fn default() -> Self {
        Column { numbers: Vec::new() }
    }
}

impl<C: Cell> Column<C> {
    /// The values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = C> + '_ {
        (0..self.numbers.len()).map(|row| self.get(row))
    }

    /// The value in a row. Panics past the end, as slices do.
    pub fn get(&self, row: usize) -> C {
        #[expect(clippy::expect_used, reason = "numbers come from `push` or were checked by `append`")]
        C::from_number(self.numbers[row]).expect("a column holds only numbers with a meaning")
    }

    /// Gives a row another value. Panics past the end, as slices do.
    pub(crate) fn set(&mut self, row: usize, value: C) {
        self.numbers[row] = value.to_number();
    }

    /// The plain numbers, as any Arrow reader sees them.
    pub fn numbers(&self) -> &[C::Number] {
        &self.numbers
    }
}

impl<C: Cell> FieldColumn for Column<C> {
    type Value = C;

    fn push(&mut self, value: C) {
        self.numbers.push(value.to_number());
    }

    fn get(&self, row: usize) -> C {
        self.get(row)
    }
}

impl<C: Cell> Buffers for Column<C> {
    fn kind(&self) -> ColumnKind {
        ColumnKind::of::<C>(false)
    }

    fn null_count(&self) -> usize {
        0
    }

    fn buffers(&self) -> Vec<&[u8]> {
        vec![&[], bytemuck::cast_slice(&self.numbers)]
    }

    fn append(&mut self, rows: usize, source: &mut dyn BufferSource) -> Result<(), Malformed> {
        source.next_into(&mut [])?;
        append_numbers::<C>(&mut self.numbers, rows, source)
    }

    fn reserve(&mut self, rows: usize) {
        self.numbers.reserve(rows);
    }

    fn truncate(&mut self, rows: usize) {
        self.numbers.truncate(rows);
    }
}

/// A column in which a row may have no value.
#[derive(Debug)]
pub struct OptionalColumn<C: Cell> {
    /// Zero where there is no value.
    numbers: Vec<C::Number>,
    present: BooleanBufferBuilder,
}

impl<C: Cell> Default for OptionalColumn<C> {
    fn default() -> Self {
        OptionalColumn { numbers: Vec::new(), present: BooleanBufferBuilder::new(0) }
    }
}

impl<C: Cell> OptionalColumn<C> {
    /// The values, `None` where there is none.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<C>> + '_ {
        (0..self.numbers.len()).map(|row| self.get(row))
    }

    /// The value in a row, if it has one. Panics past the end, as slices do.
    pub fn get(&self, row: usize) -> Option<C> {
        self.present.get_bit(row).then(|| C::from_number(self.numbers[row])).flatten()
    }

    /// Gives a row a value. Panics past the end, as slices do.
    pub(crate) fn set(&mut self, row: usize, value: C) {
        self.numbers[row] = value.to_number();
        self.present.set_bit(row, true);
    }

    /// Takes the value of a row away. Panics past the end, as slices do.
    pub(crate) fn clear(&mut self, row: usize) {
        self.numbers[row] = C::Number::default();
        self.present.set_bit(row, false);
    }

    /// The plain numbers, as any Arrow reader sees them: zero where there is no value.
    pub fn numbers(&self) -> &[C::Number] {
        &self.numbers
    }
}

impl<C: Cell> FieldColumn for OptionalColumn<C> {
    type Value = Option<C>;

    fn push(&mut self, value: Option<C>) {
        self.present.append(value.is_some());
        self.numbers.push(value.map(C::to_number).unwrap_or_default());
    }

    fn get(&self, row: usize) -> Option<C> {
        self.get(row)
    }
}

impl<C: Cell> Buffers for OptionalColumn<C> {
    fn kind(&self) -> ColumnKind {
        ColumnKind::of::<C>(true)
    }

    fn null_count(&self) -> usize {
        let present: usize = self.present.as_slice().iter().map(|byte| byte.count_ones() as usize).sum();
        self.numbers.len() - present
    }

    fn buffers(&self) -> Vec<&[u8]> {
        let validity = if self.null_count() == 0 { &[] } else { self.present.as_slice() };
        vec![validity, bytemuck::cast_slice(&self.numbers)]
    }

    fn append(&mut self, rows: usize, source: &mut dyn BufferSource) -> Result<(), Malformed> {
        match source.next_length()? {
            0 => {
                source.next_into(&mut [])?;
                self.present.append_n(rows, true);
            }
            // A buffer may be padded, and not with megabytes.
            length if (rows.div_ceil(8)..=rows.div_ceil(8).next_multiple_of(64)).contains(&length) => {
                let mut validity = vec![0; length];
                source.next_into(&mut validity)?;
                self.present.append_packed_range(0..rows, &validity);
                if validity.iter().all(|byte| *byte == 0) {
                    self.numbers.resize(self.numbers.len() + rows, C::Number::default());
                    return source.skip();
                }
            }
            _ => return Err(Malformed),
        }
        append_numbers::<C>(&mut self.numbers, rows, source)
    }

    fn append_unknown(&mut self, rows: usize) -> Result<(), Malformed> {
        self.numbers.resize(self.numbers.len() + rows, C::Number::default());
        self.present.append_n(rows, false);
        Ok(())
    }

    fn reserve(&mut self, rows: usize) {
        self.numbers.reserve(rows);
        self.present.reserve(rows);
    }

    fn truncate(&mut self, rows: usize) {
        self.numbers.truncate(rows);
        self.present.truncate(rows);
    }
}

/// Reads the next buffer as `rows` numbers and checks that each has a meaning.
fn append_numbers<C: Cell>(
    numbers: &mut Vec<C::Number>,
    rows: usize,
    source: &mut dyn BufferSource,
) -> Result<(), Malformed> {
    if source.next_length()? != rows * size_of::<C::Number>() {
        return Err(Malformed);
    }
    let before = numbers.len();
    numbers.resize(before + rows, C::Number::default());
    source.next_into(bytemuck::cast_slice_mut(&mut numbers[before..]))?;
    if numbers[before..].iter().all(|number| C::from_number(*number).is_some()) { Ok(()) } else { Err(Malformed) }
}

/// All texts of a column together are no longer: whoever records keeps far less, and texts of zeros are short in a file.
const MOST_TEXT: usize = 128 << 20;

/// A column of text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TextColumn {
    /// Where each row's text begins, and after the last row where it ends.
    offsets: Vec<i32>,
    bytes: Vec<u8>,
}

impl Default for TextColumn {
    fn default() -> Self {
        TextColumn { offsets: vec![0], bytes: Vec::new() }
    }
}

impl TextColumn {
    /// Appends one text.
    pub(crate) fn push(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
        self.offsets.push(self.bytes.len() as i32);
    }

    /// The text in a row. Panics past the end, as slices do.
    pub(crate) fn get(&self, row: usize) -> &str {
        let text = &self.bytes[self.offsets[row] as usize..self.offsets[row + 1] as usize];
        #[expect(clippy::expect_used, reason = "texts come from `push` or were checked by `append`")]
        std::str::from_utf8(text).expect("a column holds only whole texts")
    }
}

impl Buffers for TextColumn {
    fn kind(&self) -> ColumnKind {
        ColumnKind { data_type: DataType::Utf8, words: Vec::new(), is_noise: false, nullable: false }
    }

    fn null_count(&self) -> usize {
        0
    }

    fn buffers(&self) -> Vec<&[u8]> {
        vec![&[], bytemuck::cast_slice(&self.offsets), &self.bytes]
    }

    fn append(&mut self, rows: usize, source: &mut dyn BufferSource) -> Result<(), Malformed> {
        source.next_into(&mut [])?;
        let mut offsets = vec![0_i32; rows + 1];
        if source.next_length()? != size_of_val(offsets.as_slice()) {
            return Err(Malformed);
        }
        source.next_into(bytemuck::cast_slice_mut(&mut offsets))?;
        let mut bytes = vec![0; source.next_length()?];
        source.next_into(&mut bytes)?;

        if offsets[0] != 0 || offsets[rows] != bytes.len() as i32 || self.bytes.len() + bytes.len() > MOST_TEXT {
            return Err(Malformed);
        }
        let base = self.bytes.len() as i32;
        for pair in offsets.windows(2) {
            let text = bytes.get(pair[0] as usize..pair[1] as usize).ok_or(Malformed)?;
            std::str::from_utf8(text).map_err(|_| Malformed)?;
            self.offsets.push(base + pair[1]);
        }
        self.bytes.extend_from_slice(&bytes);
        Ok(())
    }

    fn reserve(&mut self, rows: usize) {
        self.offsets.reserve(rows);
    }

    fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        self.bytes.truncate(self.offsets[rows] as usize);
    }
}
