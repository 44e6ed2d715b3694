//! A column of a table: what a row has there, and how that stands in a Parquet file.
//!
//! There are five types, which every reader knows: signed integers of 64 bits, floating-point numbers of 64 bits, truth values
//! and text. Nothing is unsigned, since Spark has no such numbers; what no signed integer holds is null. Any column may be null,
//! which means unknown.

use parquet::{
    basic::{Encoding, LogicalType, Repetition, Type as PhysicalType},
    data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type},
    errors::ParquetError,
    file::{properties::WriterPropertiesBuilder, writer::SerializedColumnWriter},
    schema::types::{ColumnPath, Type},
};

/// A column of a table: its name, and what a row has there, with what is known besides rows.
pub(super) struct Field<R, C> {
    pub(super) name: &'static str,
    value: Value<R, C>,
}

type Of<R, C, T> = Box<dyn Fn(&R, &C) -> Option<T>>;

enum Value<R, C> {
    Integer(Of<R, C, i64>),
    /// An integer that is like the one before it.
    Rising(Of<R, C, i64>),
    Number(Of<R, C, f64>),
    Truth(Of<R, C, bool>),
    Text(Of<R, C, ByteArray>),
}

impl<R, C> Field<R, C> {
    pub(super) fn integer(name: &'static str, of: impl Fn(&R, &C) -> Option<i64> + 'static) -> Self {
        Field { name, value: Value::Integer(Box::new(of)) }
    }

    /// A time, or another number that is like the one before it and never the same.
    pub(super) fn rising(name: &'static str, of: impl Fn(&R, &C) -> Option<i64> + 'static) -> Self {
        Field { name, value: Value::Rising(Box::new(of)) }
    }

    pub(super) fn number(name: &'static str, of: impl Fn(&R, &C) -> Option<f64> + 'static) -> Self {
        Field { name, value: Value::Number(Box::new(of)) }
    }

    pub(super) fn truth(name: &'static str, of: impl Fn(&R, &C) -> Option<bool> + 'static) -> Self {
        Field { name, value: Value::Truth(Box::new(of)) }
    }

    pub(super) fn text(name: &'static str, of: impl Fn(&R, &C) -> Option<ByteArray> + 'static) -> Self {
        Field { name, value: Value::Text(Box::new(of)) }
    }

    /// Its type in a file.
    pub(super) fn column(&self) -> Result<Type, ParquetError> {
        let (physical, logical) = match self.value {
            Value::Integer(_) | Value::Rising(_) => (PhysicalType::INT64, None),
            Value::Number(_) => (PhysicalType::DOUBLE, None),
            Value::Truth(_) => (PhysicalType::BOOLEAN, None),
            Value::Text(_) => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let column = Type::primitive_type_builder(self.name, physical).with_repetition(Repetition::OPTIONAL);
        column.with_logical_type(logical).build()
    }

    /// How it is packed: numbers that rise by their differences, everything else in dictionaries where that is shorter.
    pub(super) fn packed(&self, properties: WriterPropertiesBuilder) -> WriterPropertiesBuilder {
        if !matches!(self.value, Value::Rising(_)) {
            return properties;
        }
        let column = ColumnPath::from(self.name);
        let properties = properties.set_column_dictionary_enabled(column.clone(), false);
        properties.set_column_encoding(column, Encoding::DELTA_BINARY_PACKED)
    }

    /// Writes what some rows have here.
    pub(super) fn write(
        &self,
        rows: &[R],
        context: &C,
        into: &mut SerializedColumnWriter<'_>,
    ) -> Result<(), ParquetError> {
        match &self.value {
            Value::Integer(of) | Value::Rising(of) => write::<Int64Type>(rows.iter().map(|row| of(row, context)), into),
            Value::Number(of) => write::<DoubleType>(rows.iter().map(|row| of(row, context)), into),
            Value::Truth(of) => write::<BoolType>(rows.iter().map(|row| of(row, context)), into),
            Value::Text(of) => write::<ByteArrayType>(rows.iter().map(|row| of(row, context)), into),
        }
    }
}

/// Values that are there, and for each row whether one is.
fn write<T: DataType>(
    values: impl ExactSizeIterator<Item = Option<T::T>>,
    into: &mut SerializedColumnWriter<'_>,
) -> Result<(), ParquetError> {
    let (mut there, mut levels) = (Vec::with_capacity(values.len()), Vec::with_capacity(values.len()));
    for value in values {
        levels.push(i16::from(value.is_some()));
        there.extend(value);
    }
    into.typed::<T>().write_batch(&there, Some(&levels), None).map(drop)
}
