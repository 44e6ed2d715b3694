//! What is trained on: bytes of files, or a built-in text that a model can visibly learn.

use std::{
    borrow::Cow,
    fs::File,
    io::{self, ErrorKind},
    ops::Range,
    os::unix::fs::FileExt,
    path::PathBuf,
};

use stepscope_traces::open_regular;

use crate::{error::TrainError, seed::mixed};

/// Bytes to train on; a token is a byte.
pub struct Dataset {
    files: Vec<Bytes>,
    /// Whether the end of each file is kept for evaluation.
    holds_out: bool,
}

/// What a sequence is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// To learn from.
    Training,
    /// To see what has been learned.
    Evaluation,
}

/// One in so many bytes is kept for evaluation.
const HELD_OUT: usize = 10;

/// Where bytes are. Files are not mapped: one that is cut short while it is trained on is an error, where reading a map would end the
/// process.
enum Bytes {
    File { path: PathBuf, file: File, length: usize },
    Written(Vec<u8>),
}

impl Bytes {
    fn length(&self) -> usize {
        match self {
            Bytes::File { length, .. } => *length,
            Bytes::Written(text) => text.len(),
        }
    }

    fn read(&self, range: Range<usize>) -> Result<Cow<'_, [u8]>, TrainError> {
        match self {
            Bytes::Written(text) => Ok(text[range].into()),
            Bytes::File { path, file, .. } => {
                let mut bytes = vec![0; range.len()];
                read_exactly(file, &mut bytes, range.start as u64).map_err(TrainError::file("read", path))?;
                Ok(bytes.into())
            }
        }
    }
}

/// Tokens there are at least: bytes.
pub(crate) const BYTE_VALUES: u64 = 256;

/// Sentences of the built-in text.
const SENTENCES: usize = 4096;

impl Dataset {
    /// The bytes of files, or the built-in text where there are none; long enough for a sequence.
    pub fn open(paths: &[PathBuf], sequence_length: u64, holds_out: bool) -> Result<Dataset, TrainError> {
        let data = if paths.is_empty() { Dataset::built_in() } else { Dataset::of_files(paths)? };
        let data = Dataset { holds_out, ..data };
        for (index, file) in data.files.iter().enumerate() {
            let uses: &[(Use, &str)] = match holds_out {
                true => &[(Use::Training, " to train on"), (Use::Evaluation, " to evaluate on")],
                false => &[(Use::Training, "")],
            };
            for (of, what) in uses {
                let length = data.part(file, *of).len() as u64;
                if length <= sequence_length {
                    let path = paths.get(index).cloned().unwrap_or_else(|| "the built-in text".into());
                    let why = format!("it has {length} bytes{what}, but a sequence needs {}", sequence_length + 1);
                    return Err(TrainError::File { action: "train on", path, why });
                }
            }
        }
        Ok(data)
    }

    /// The part of a file that is for one use.
    fn part(&self, file: &Bytes, of: Use) -> Range<usize> {
        let length = file.length();
        let training = length - if self.holds_out { length / HELD_OUT } else { 0 };
        match of {
            Use::Training => 0..training,
            Use::Evaluation => training..length,
        }
    }

    /// A text in simple sentences, the same every time.
    pub fn built_in() -> Dataset {
        let pick = |words: &[&'static str], number: u64| words[number as usize % words.len()];
        let mut text = String::new();
        for sentence in 0..SENTENCES as u64 {
            let random = |word: u64| mixed(&[sentence, word]);
            let subject = pick(&["a kernel", "the optimizer", "every rank", "the pipeline", "one gradient"], random(0));
            let verb = pick(&["waits for", "overlaps", "reduces", "gathers", "computes"], random(1));
            let object = pick(&["the next layer", "a micro-batch", "its shard", "the last bucket"], random(2));
            let (left, right) = (random(3) % 10, random(4) % 10);
            text += &format!("{subject} {verb} {object}. {left} and {right} make {}.\n", left + right);
        }
        Dataset { files: vec![Bytes::Written(text.into_bytes())], holds_out: false }
    }

    /// The bytes of files, as they are when they are read.
    fn of_files(paths: &[PathBuf]) -> Result<Dataset, TrainError> {
        let open = |path: &PathBuf| {
            let file = open_regular(path).map_err(TrainError::file("open", path))?;
            let length = file.metadata().map_err(TrainError::file("open", path))?.len() as usize;
            Ok::<Bytes, TrainError>(Bytes::File { path: path.clone(), file, length })
        };
        Ok(Dataset { files: paths.iter().map(open).collect::<Result<_, _>>()?, holds_out: false })
    }

    /// A sequence and one token more: which one follows from the seed, the step and its place in the global batch, and
    /// so not from the layout. The data is longer than a sequence, or this is empty.
    pub fn sequence(
        &self,
        of: Use,
        seed: u64,
        step: u64,
        index: u64,
        length: usize,
    ) -> Result<Cow<'_, [u8]>, TrainError> {
        let parts = || self.files.iter().map(|file| (file, self.part(file, of)));
        let places = |part: &Range<usize>| part.len().saturating_sub(length) as u64;
        let all: u64 = parts().map(|(_, part)| places(&part)).sum();
        let mut place = mixed(&[seed, step, index]) % all.max(1);
        for (file, part) in parts() {
            if place < places(&part) {
                let start = part.start + place as usize;
                return file.read(start..start + length + 1);
            }
            place -= places(&part);
        }
        Ok(Cow::default())
    }
}

/// Reads so many bytes from a place in a file, which had them when it was opened.
pub(crate) fn read_exactly(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    file.read_exact_at(bytes, at).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => io::Error::other("it has become shorter since it was opened"),
        _ => error,
    })
}
