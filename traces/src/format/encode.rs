//! Tables into messages.

use std::io;

use arrow_ipc::{
    BodyCompression, BodyCompressionArgs, BodyCompressionMethod, Buffer, CompressionType, DictionaryBatch,
    DictionaryBatchArgs, FieldNode, KeyValue, KeyValueArgs, Message, MessageArgs, MessageHeader, MetadataVersion,
    RecordBatch, RecordBatchArgs, convert::IpcSchemaEncoder, writer::DictionaryTracker,
};
use arrow_schema::{Field, Schema};
use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};
use zstd::{
    bulk::Compressor,
    zstd_safe::{CParameter, ParamSwitch, Strategy},
};

use super::{SCHEMA_VERSION, frame, key};
use crate::{
    columns::{Buffers, TextColumn},
    ids::Nanos,
    tables::Table,
};

/// The level at which the writer keeps its pace and a span still takes well under 16 bytes.
const COMPRESSION_LEVEL: i32 = 1;
/// Shorter buffers are stored as they are.
const WORTH_COMPRESSING: usize = 64;
/// Marks a stored buffer.
pub(super) const STORED: i64 = -1;

/// Writes messages; keeps its buffers from one batch to the next.
pub(crate) struct Encoder {
    /// For columns that repeat themselves.
    patterns: Compressor<'static>,
    /// For columns that do not.
    noise: Compressor<'static>,
    flatbuffer: FlatBufferBuilder<'static>,
    body: Vec<u8>,
}

impl Encoder {
    pub(crate) fn new() -> io::Result<Encoder> {
        let compressor = || {
            let mut compressor = Compressor::new(COMPRESSION_LEVEL)?;
            // The message has its own checksum and each buffer its own length.
            compressor.include_checksum(false)?;
            compressor.include_contentsize(false)?;
            Ok::<_, io::Error>(compressor)
        };
        let (patterns, mut noise) = (compressor()?, compressor()?);
        // Times hardly ever repeat, but their high bytes do, one short match in every row. Looking for none and only
        // coding the bytes by how often they occur takes a byte or two more and half the time, to write and to read.
        noise.set_parameter(CParameter::Strategy(Strategy::ZSTD_fast))?;
        noise.set_parameter(CParameter::TargetLength(zstd::zstd_safe::BLOCKSIZE_MAX))?;
        noise.set_parameter(CParameter::LiteralCompressionMode(ParamSwitch::Enable))?;
        Ok(Encoder { patterns, noise, flatbuffer: FlatBufferBuilder::new(), body: Vec::new() })
    }

    /// What a file begins with: the schema, and the words of its dictionary columns.
    pub(crate) fn preamble<T: Table>(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let empty = T::default();
        self.flatbuffer.reset();
        let schema = schema_of(&empty);
        let mut dictionary_ids = DictionaryTracker::new(true);
        let header = IpcSchemaEncoder::new()
            .with_dictionary_tracker(&mut dictionary_ids)
            .schema_to_fb_offset(&mut self.flatbuffer, &schema);
        self.body.clear();
        self.seal(MessageHeader::Schema, header.as_union_value(), &[], out);

        let vocabularies = empty.columns().into_iter().map(|(_, column)| column.kind().words);
        for (id, words) in vocabularies.filter(|words| !words.is_empty()).enumerate() {
            let mut column = TextColumn::default();
            words.iter().for_each(|word| column.push(word));
            self.flatbuffer.reset();
            let batch = self.batch(words.len(), &[&column])?;
            let header = DictionaryBatch::create(
                &mut self.flatbuffer,
                &DictionaryBatchArgs { id: id as i64, data: Some(batch), isDelta: false },
            );
            self.seal(MessageHeader::DictionaryBatch, header.as_union_value(), &[], out);
        }
        Ok(())
    }

    /// One batch of rows.
    pub(crate) fn rows<T: Table>(&mut self, table: &T, first_row: u64, out: &mut Vec<u8>) -> io::Result<()> {
        self.flatbuffer.reset();
        let columns: Vec<&dyn Buffers> = table.columns().into_iter().map(|(_, column)| column).collect();
        let batch = self.batch(table.len(), &columns)?;
        let mut metadata = vec![(key::FIRST_ROW, first_row.to_string())];
        if let Some((Nanos(from), Nanos(to))) = table.time_range() {
            metadata.push((key::FROM_NS, from.to_string()));
            metadata.push((key::TO_NS, to.to_string()));
        }
        self.seal(MessageHeader::RecordBatch, batch.as_union_value(), &metadata, out);
        Ok(())
    }

    /// Lays the columns out as `self.body` and describes it.
    fn batch(&mut self, rows: usize, columns: &[&dyn Buffers]) -> io::Result<WIPOffset<RecordBatch<'static>>> {
        self.body.clear();
        let mut buffers = Vec::new();
        for column in columns {
            let compressor = if column.kind().is_noise { &mut self.noise } else { &mut self.patterns };
            for bytes in column.buffers() {
                let offset = self.body.len();
                append_buffer(compressor, bytes, &mut self.body)?;
                buffers.push(Buffer::new(offset as i64, (self.body.len() - offset) as i64));
                self.body.resize(frame::padded(self.body.len()), 0);
            }
        }
        let nodes: Vec<FieldNode> =
            columns.iter().map(|column| FieldNode::new(rows as i64, column.null_count() as i64)).collect();

        let nodes = self.flatbuffer.create_vector(&nodes);
        let buffers = self.flatbuffer.create_vector(&buffers);
        let compression = BodyCompression::create(
            &mut self.flatbuffer,
            &BodyCompressionArgs { codec: CompressionType::ZSTD, method: BodyCompressionMethod::BUFFER },
        );
        let arguments = RecordBatchArgs {
            length: rows as i64,
            nodes: Some(nodes),
            buffers: Some(buffers),
            compression: Some(compression),
            variadicBufferCounts: None,
        };
        Ok(RecordBatch::create(&mut self.flatbuffer, &arguments))
    }

    fn seal(
        &mut self,
        header_type: MessageHeader,
        header: WIPOffset<UnionWIPOffset>,
        metadata: &[(&str, String)],
        out: &mut Vec<u8>,
    ) {
        let builder = &mut self.flatbuffer;
        let pairs: Vec<_> = metadata
            .iter()
            .map(|(key, value)| {
                let (key, value) = (builder.create_string(key), builder.create_string(value));
                KeyValue::create(builder, &KeyValueArgs { key: Some(key), value: Some(value) })
            })
            .collect();
        let custom_metadata = (!pairs.is_empty()).then(|| builder.create_vector(&pairs));
        let arguments = MessageArgs {
            version: MetadataVersion::V5,
            header_type,
            header: Some(header),
            bodyLength: self.body.len() as i64,
            custom_metadata,
        };
        let message = Message::create(builder, &arguments);
        builder.finish(message, None);
        frame::seal(builder.finished_data(), &self.body, out);
    }
}

/// Appends one buffer to a body: its uncompressed length, then its bytes. An empty one takes no room.
fn append_buffer(compressor: &mut Compressor<'_>, bytes: &[u8], body: &mut Vec<u8>) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let start = body.len();
    body.extend_from_slice(&(bytes.len() as i64).to_le_bytes());
    let data = body.len();
    if bytes.len() >= WORTH_COMPRESSING {
        body.resize(data + zstd::zstd_safe::compress_bound(bytes.len()), 0);
        let length = compressor.compress_to_buffer(bytes, &mut body[data..])?;
        body.truncate(data + length);
        if length < bytes.len() {
            return Ok(());
        }
    }
    body.truncate(start);
    body.extend_from_slice(&STORED.to_le_bytes());
    body.extend_from_slice(bytes);
    Ok(())
}

/// The Arrow schema of a table.
pub(crate) fn schema_of<T: Table>(table: &T) -> Schema {
    let fields: Vec<Field> = table
        .columns()
        .into_iter()
        .map(|(name, column)| {
            let kind = column.kind();
            Field::new(name, kind.data_type, kind.nullable)
        })
        .collect();
    let metadata = [(key::SCHEMA.to_owned(), SCHEMA_VERSION.to_string())];
    Schema::new_with_metadata(fields, std::collections::HashMap::from(metadata))
}
