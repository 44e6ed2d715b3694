//! What a file is that nobody here reads, told by its content, and how to get one that is read.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
};

use flate2::read::MultiGzDecoder;
use serde::de::IgnoredAny;

use super::{
    unpacked::GZIP,
    xplane::{Protobuf, kind_of_protobuf},
};

/// How much of a file is looked at.
const HEAD: u64 = 64 << 10;

/// Keys that PyTorch's profiler writes before its events, in small letters.
const KINETO: [&str; 3] = ["\"schemaversion\"", "\"deviceproperties\"", "\"distributedinfo\""];

/// What stands in place of bytes that are no text, where a program took them for text.
const REPLACED: &[u8] = "\u{fffd}".as_bytes();

/// The beginning of a file, unpacked. What cannot be unpacked is not there.
pub(crate) fn head_of(file: &File) -> Vec<u8> {
    let is_packed = is_packed(file);
    let from_start = FromStart { file, at: 0 };
    let mut bytes = Vec::new();
    // What came before an error can be looked at all the same.
    let _ = match is_packed {
        true => MultiGzDecoder::new(from_start).take(HEAD).read_to_end(&mut bytes),
        false => from_start.take(HEAD).read_to_end(&mut bytes),
    };
    bytes
}

/// Whether a file is packed with gzip.
pub(crate) fn is_packed(file: &File) -> bool {
    let mut begin = [0; 2];
    file.read_exact_at(&mut begin, 0).is_ok() && begin == GZIP
}

/// Reads a file from its beginning, wherever others read it.
struct FromStart<'a> {
    file: &'a File,
    at: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(into, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// What a JSON object without events is that begins so.
pub(crate) fn kind_of_object(bytes: &[u8]) -> &'static str {
    if is_execution_trace(&beginning(bytes)) { EXECUTION_TRACE } else { "JSON without traceEvents" }
}

/// What a file is that begins so.
pub(crate) fn kind_of(bytes: &[u8]) -> &'static str {
    const MAGIC: [(&[u8], &str); 18] = [
        (b"PK\x03\x04", "a zip archive, such as a PyTorch checkpoint"),
        (b"\x28\xb5\x2f\xfd", "zstd-compressed; decompress it first"),
        (b"BZh", "bzip2-compressed; decompress it first"),
        (b"\xfd7zXZ", "xz-compressed; decompress it first"),
        (b"\x1f\x8b", "a gzip file inside another; decompress it first"),
        (b"SQLite format 3", "an SQLite database"),
        (b"ARROW1", "an Arrow file"),
        (b"\xff\xff\xff\xff", "an Arrow stream"),
        (b"PAR1", "a Parquet file"),
        (b"\x89PNG", "a picture"),
        (b"\x89HDF", "an HDF5 file, such as Keras weights"),
        (b"\x93NUMPY", "a NumPy array"),
        (b"\x7fELF", "a program"),
        (b"%PDF", "a PDF"),
        (b"\x80\x02", "a Python pickle"),
        (b"\x80\x03", "a Python pickle"),
        (b"\x80\x04", "a Python pickle"),
        (b"\x80\x05", "a Python pickle"),
    ];
    if let Some((_, kind)) = MAGIC.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return kind;
    }
    match () {
        () if bytes.is_empty() => "empty",
        () if bytes.get(257..262) == Some(b"ustar") => "a tar archive; unpack it first",
        () if is_safetensors(bytes) => "a safetensors checkpoint",
        () if is_event_file(bytes) => {
            "a TensorBoard event file; the profile lies beside it, in plugins/profile/*/*.xplane.pb"
        }
        () if is_text(bytes) => kind_of_text(bytes),
        () => match kind_of_protobuf(bytes) {
            Some(Protobuf::XSpace) => "a JAX or TensorFlow profile (XPlane) that cannot be read",
            _ if was_text(bytes) => "a binary file that was damaged when a program took it for text; copy it as binary",
            Some(Protobuf::Perfetto) => "a Perfetto trace, which cannot be analyzed; analyze what it was made from",
            None => "binary data of a kind that stepscope does not know",
        },
    }
}

/// Its length, eight bytes, and then its head in JSON.
fn is_safetensors(bytes: &[u8]) -> bool {
    let length = bytes.first_chunk().map(|length| u64::from_le_bytes(*length));
    length.is_some_and(|length| (2..100 << 20).contains(&length)) && bytes.get(8) == Some(&b'{')
}

/// The first record of an event file, behind its length and checksum, says which version it is.
fn is_event_file(bytes: &[u8]) -> bool {
    bytes.len() > 40 && bytes[12..40].windows(12).any(|words| words == b"brain.Event:")
}

/// A character may be cut where the head ends.
fn is_text(bytes: &[u8]) -> bool {
    let is_printable = |text: &str| text.chars().all(|letter| !letter.is_control() || letter.is_ascii_whitespace());
    match std::str::from_utf8(bytes) {
        Ok(text) => is_printable(text),
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).is_ok_and(is_printable)
        }
        Err(_) => false,
    }
}

/// What PyTorch's `ExecutionTraceObserver` writes.
const EXECUTION_TRACE: &str =
    "a PyTorch execution trace, which has no times; record the program with torch.profiler, and use what that exports";

/// Its nodes are many, so that the end of them is out of sight.
fn is_execution_trace(beginning: &str) -> bool {
    beginning.starts_with('{') && ["\"schema\"", "\"nodes\""].iter().all(|key| beginning.contains(key))
}

/// The beginning of a text, in small letters.
fn beginning(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(4 << 10)]).trim_start().to_ascii_lowercase()
}

fn kind_of_text(bytes: &[u8]) -> &'static str {
    let text = beginning(bytes);
    let first = text.lines().next().unwrap_or_default();
    match () {
        () if first.starts_with("<!doctype html") || first.starts_with("<html") => {
            "a web page; a download may have asked for a login"
        }
        () if first.starts_with('<') => "XML, not JSON",
        () if first.starts_with("(dp") || first.starts_with("(lp") => {
            "a Python pickle of protocol 0; write it with protocol 2 or later"
        }
        () if first.starts_with("version https://git-lfs") => "a Git LFS pointer; `git lfs pull` gets the file",
        () if first.matches(',').count() >= 2 && is_profiler_table(first) => {
            "a CSV table of a profiler, which has no timeline that is read"
        }
        () if is_execution_trace(&text) => EXECUTION_TRACE,
        () if is_cut_object(bytes) && KINETO.iter().any(|key| text.contains(key)) => {
            "a PyTorch profiler trace that is truncated before its events; copy it again, or let the profiler finish"
        }
        () if is_cut_object(bytes) => "JSON that is truncated; copy it again",
        () if is_lone_value(first) => "JSON, but one value and no object with traceEvents",
        () => "text, not JSON",
    }
}

/// Whether a whole file is the beginning of a JSON object.
fn is_cut_object(bytes: &[u8]) -> bool {
    let read = || serde_json::from_slice::<IgnoredAny>(bytes);
    (bytes.len() as u64) < HEAD
        && bytes.trim_ascii_start().starts_with(b"{")
        && read().is_err_and(|error| error.is_eof())
}

/// Whether a text is a JSON value that has no others in it. What an object has, the readers say.
fn is_lone_value(text: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(text).is_ok_and(|value| !value.is_object() && !value.is_array())
}

/// Whether the columns of a table are those of kernels and calls.
fn is_profiler_table(columns: &str) -> bool {
    ["kernel_name", "kernel name", "start_timestamp", "duration", "total time", "\"kind\""]
        .iter()
        .any(|column| columns.contains(column))
}

/// Whether so many bytes were replaced that what they were is lost.
fn was_text(bytes: &[u8]) -> bool {
    bytes.len() >= 64 && 32 * memchr::memmem::find_iter(bytes, REPLACED).count() > bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_for_what_they_are() {
        let mut tar = vec![0; 512];
        tar[..4].copy_from_slice(b"a.py");
        tar[257..262].copy_from_slice(b"ustar");
        let events =
            [&[24, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 9, 0, 0, 0, 0, 0, 0, 0, 0, 26, 13][..], b"brain.Event:2"].concat();
        for (bytes, expected) in [
            (&tar[..], "a tar archive"),
            (b"\x40\x00\x00\x00\x00\x00\x00\x00{\"weight\": {}}", "a safetensors checkpoint"),
            (&[&events[..], &[0; 8]].concat(), "a TensorBoard event file"),
            (b"<!DOCTYPE html><html>", "a web page"),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:", "a Git LFS pointer"),
            (b"\"Kind\",\"Kernel_Name\",\"Start_Timestamp\"\n", "a CSV table"),
            (b"one, two, three, four", "text, not JSON"),
            (b"{\n  \"schemaVersion\": 1,\n  \"deviceProp", "a PyTorch profiler trace that is truncated before its"),
            (b"{\"nodes\": [1, 2", "JSON that is truncated"),
            (b"{\"schema\": \"1.1.0-chakra.0.0.4\", \"pid\": 7, \"nodes\": [{\"id\": 1", "a PyTorch execution trace"),
            (b"{nodes: [1, 2]}", "text, not JSON"),
            ("\u{fffd}\u{fffd}ab".repeat(12).as_bytes(), "text, not JSON"),
            ("\u{1}\u{fffd}\u{fffd}ab".repeat(12).as_bytes(), "a binary file that was damaged"),
            (&[0, 1, 2, 3], "binary data of a kind"),
            (b"(dp0\nVsegments\np1\n", "a Python pickle of protocol 0"),
            (b"PAR1", "a Parquet file"),
        ] {
            let kind = kind_of(bytes);
            assert!(kind.starts_with(expected), "{kind} is not {expected}");
        }
    }
}
