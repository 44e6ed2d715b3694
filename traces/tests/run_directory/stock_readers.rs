use std::fs::File;

use arrow_array::{
    Array, ArrayAccessor, RecordBatch, UInt64Array,
    cast::AsArray,
    types::{Float64Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type},
};
use stepscope_traces::synthetic::Recipe;

use crate::events::read;

/// Enough for every column to have values, and some to have none.
fn recipe() -> Recipe {
    Recipe { replicas: 2, steps: 3, flush_every: stepscope_traces::Nanos(2_000_000), ..Recipe::default() }
}

fn batches(path: &std::path::Path) -> Vec<RecordBatch> {
    let reader = arrow_ipc::reader::StreamReader::try_new(File::open(path).unwrap(), None).unwrap();
    reader.collect::<Result<_, _>>().unwrap()
}

/// A column as plain text, the way a person would see it.
fn texts(batches: &[RecordBatch], name: &str) -> Vec<Option<String>> {
    fn all<T: std::fmt::Display>(array: impl ArrayAccessor<Item = T>) -> Vec<Option<String>> {
        (0..array.len()).map(|row| array.is_valid(row).then(|| array.value(row).to_string())).collect()
    }
    let column = |batch: &RecordBatch| {
        let array = batch.column_by_name(name).unwrap();
        use arrow_schema::DataType::{Dictionary, Float64, Int16, Int32, Int64, UInt16, UInt32, UInt64, Utf8};
        match array.data_type() {
            Int16 => all(array.as_primitive::<Int16Type>()),
            Int32 => all(array.as_primitive::<Int32Type>()),
            Int64 => all(array.as_primitive::<Int64Type>()),
            UInt16 => all(array.as_primitive::<UInt16Type>()),
            UInt32 => all(array.as_primitive::<UInt32Type>()),
            UInt64 => all(array.as_primitive::<UInt64Type>()),
            Float64 => all(array.as_primitive::<Float64Type>()),
            Utf8 => all(array.as_string::<i32>()),
            Dictionary(..) => {
                let words = array.as_dictionary::<UInt8Type>();
                all(words.downcast_dict::<arrow_array::StringArray>().unwrap())
            }
            other => panic!("{name} is {other}"),
        }
    };
    batches.iter().flat_map(column).collect()
}

#[test]
fn arrow_reads_every_column() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    recipe().write(&path).unwrap();
    let (data, _) = read(&path, stepscope_traces::Window::ALL);
    let rank = path.join("rank-00000");

    let spans = batches(&rank.join("spans.arrows"));
    assert!(spans.len() > 3, "the run has several batches");
    macro_rules! compare {
        ($batches:expr, $table:expr, required: $($required:ident)*; optional: $($optional:ident)*) => {
            $(assert_eq!(
                texts($batches, stringify!($required)),
                $table.$required.iter().map(|value| Some(value.to_string())).collect::<Vec<_>>(),
            );)*
            $(assert_eq!(
                texts($batches, stringify!($optional)),
                $table.$optional.iter().map(|value| value.map(|value| value.to_string())).collect::<Vec<_>>(),
            );)*
        };
    }
    compare!(&spans, data.spans,
        required: start_ns duration_ns kind name;
        optional: stream correlation step micro_batch phase layer stage bytes group sequence flops);
    let memory = batches(&rank.join("memory.arrows"));
    compare!(&memory, data.memory,
        required: time_ns op address; optional: bytes category step phase layer pool);
    let counters = batches(&rank.join("counters.arrows"));
    compare!(&counters, data.counters, required: time_ns counter value; optional:);

    let strings = batches(&rank.join("strings.arrows"));
    let names: Vec<_> = texts(&strings, "id").into_iter().zip(texts(&strings, "text")).collect();
    let expected = data.names.iter().map(|(id, text)| (Some(id.to_string()), Some(text.to_owned())));
    assert_eq!(names, expected.collect::<Vec<_>>());
}

#[test]
fn the_columns_are_those_of_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    recipe().write(&path).unwrap();
    let columns = |table: &str| {
        let file = File::open(path.join("rank-00000").join(table)).unwrap();
        let schema = arrow_ipc::reader::StreamReader::try_new(file, None).unwrap().schema();
        assert_eq!(schema.metadata()["stepscope.schema"], "2");
        let fields = schema.fields().iter().map(|field| {
            let optional = if field.is_nullable() { "?" } else { "" };
            format!("{} {}{optional}", field.name(), field.data_type()).to_lowercase()
        });
        fields.collect::<Vec<_>>().join(", ")
    };
    assert_eq!(
        columns("spans.arrows"),
        "start_ns int64, duration_ns int64, kind dictionary(uint8, utf8), name uint32, stream uint32?, \
         correlation uint64?, step int32?, micro_batch int32?, phase dictionary(uint8, utf8)?, layer int32?, \
         stage int16?, bytes uint64?, group uint32?, sequence uint64?, flops uint64?, origin uint32?"
    );
    assert_eq!(
        columns("memory.arrows"),
        "time_ns int64, op dictionary(uint8, utf8), address uint64, bytes uint64?, \
         category dictionary(uint8, utf8)?, step int32?, phase dictionary(uint8, utf8)?, layer int32?, pool uint32?, \
         site uint32?"
    );
    assert_eq!(columns("counters.arrows"), "time_ns int64, counter uint16, value float64");
    assert_eq!(columns("strings.arrows"), "id uint32, text utf8");
}

#[test]
fn a_stock_reader_reads_a_killed_run_up_to_the_torn_batch() {
    let run = crate::events::WrittenRun::numbered(4, 10);
    let whole = std::fs::read(run.spans_file()).unwrap();
    std::fs::write(run.spans_file(), &whole[..whole.len() - 100]).unwrap();
    let reader = arrow_ipc::reader::StreamReader::try_new(File::open(run.spans_file()).unwrap(), None).unwrap();
    let read: Vec<u64> = reader
        .map_while(Result::ok)
        .flat_map(|batch| {
            let column: UInt64Array = batch.column_by_name("correlation").unwrap().as_primitive().clone();
            column.values().to_vec()
        })
        .collect();
    assert_eq!(read, (0..30).collect::<Vec<_>>());
}
