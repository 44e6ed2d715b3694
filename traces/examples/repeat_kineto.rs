//! Writes a long trace of PyTorch's profiler by repeating a real one in time.
//!
//! ```sh
//! cargo run --release -p stepscope-traces --example repeat_kineto --features synthetic -- TRACE TIMES > LONG.json
//! ```

use std::{
    error::Error,
    fs,
    io::{BufWriter, Read, stdout},
};

use flate2::read::MultiGzDecoder;
use stepscope_traces::synthetic::repeat_kineto;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(times)) = (arguments.next(), arguments.next()) else {
        return Err("name a trace, and how often to repeat it".into());
    };
    let bytes = fs::read(path)?;
    let mut trace = String::new();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        MultiGzDecoder::new(&bytes[..]).read_to_string(&mut trace)?;
    } else {
        trace = String::from_utf8(bytes)?;
    }
    repeat_kineto(&trace, times.parse()?, BufWriter::new(stdout().lock()))?;
    Ok(())
}
