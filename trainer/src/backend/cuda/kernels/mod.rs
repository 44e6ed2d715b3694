//! The operations of a training step as kernels of our own, compiled where they run.
//!
//! Every one gives the same bits for the same input: sums have one order, and nothing is added by whoever comes first.

mod attention;
mod check;
mod compile;
mod cross_entropy;
mod elementwise;
mod embedding;
mod experts;
mod launch;
mod norm;
mod nvrtc;
mod optimizer;
mod parts;
mod rope;
mod source;
mod swiglu;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Mutex, thread};

use cudarc::driver::sys::CUstream;

use self::{
    compile::Compiler,
    launch::{Function, Launch, Module},
    source::{Source, Unit},
};
pub(crate) use self::{cross_entropy::Targets, experts::RoutedArrays, optimizer::OptimizerArrays, parts::Part};
use crate::{error::TrainError, lock::lock};

/// Numbers that a thread reads and writes at a time.
const GROUP: usize = 8;
/// Threads of a block where every thread has one group.
const THREADS: usize = 256;
/// Threads of a warp.
const WARP: usize = 32;

/// The kernels of one device, in the context that was current when they were loaded.
pub(crate) struct Kernels {
    compiler: Compiler,
    shared_room: usize,
    loaded: Mutex<Loaded>,
}

#[derive(Default)]
struct Loaded {
    /// Functions first, since they are gone when their module is.
    functions: HashMap<(Unit, String), Function>,
    modules: HashMap<Unit, Module>,
}

impl Kernels {
    /// Loads what every training needs into the current context; what depends on its shapes is loaded when it is used.
    /// A block may ask for `shared_room` bytes of shared memory.
    pub(crate) fn load((major, minor): (u32, u32), shared_room: usize) -> Result<Kernels, TrainError> {
        Kernels::load_with(Compiler::new(major, minor, compile::cache_directory())?, shared_room)
    }

    fn load_with(compiler: Compiler, shared_room: usize) -> Result<Kernels, TrainError> {
        let units = Source::ALWAYS.map(Unit::from);
        // The compiler works on as many texts at once as it is asked to.
        let codes: Vec<_> = thread::scope(|scope| {
            let compile = |unit| {
                let compiler = &compiler;
                scope.spawn(move || code(compiler, unit))
            };
            let threads: Vec<_> = units.iter().map(compile).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| Err(TrainError::panicked(&*panic))))
                .collect()
        });
        let mut loaded = Loaded::default();
        for (unit, code) in units.into_iter().zip(codes) {
            let module = module(&compiler, &unit, code?)?;
            loaded.modules.insert(unit, module);
        }
        Ok(Kernels { compiler, shared_room, loaded: Mutex::new(loaded) })
    }

    fn start(&self, unit: impl Into<Unit>, name: &str, launch: Launch, stream: CUstream) -> Result<(), TrainError> {
        let function = self.function(unit.into(), name, launch.shared_bytes())?;
        launch.start(name, function, stream)
    }

    fn function(&self, unit: Unit, name: &str, shared_bytes: usize) -> Result<Function, TrainError> {
        let mut loaded = lock(&self.loaded);
        let key = (unit, name.to_owned());
        if let Some(function) = loaded.functions.get(&key) {
            return Ok(*function);
        }
        if !loaded.modules.contains_key(&key.0) {
            let module = module(&self.compiler, &key.0, code(&self.compiler, &key.0)?)?;
            loaded.modules.insert(key.0.clone(), module);
        }
        let function = loaded.modules[&key.0].function(name, shared_bytes)?;
        loaded.functions.insert(key, function);
        Ok(function)
    }
}

/// Machine code and whether it was compiled just now.
struct Code {
    bytes: Vec<u8>,
    is_new: bool,
}

fn code(compiler: &Compiler, unit: &Unit) -> Result<Code, TrainError> {
    match compiler.cached(unit) {
        Some(bytes) => Ok(Code { bytes, is_new: false }),
        None => Ok(Code { bytes: compiler.compile(unit)?, is_new: true }),
    }
}

/// Loads machine code; what was kept and cannot be loaded is compiled again.
fn module(compiler: &Compiler, unit: &Unit, code: Code) -> Result<Module, TrainError> {
    let name = unit.source.name();
    match Module::load(name, &code.bytes) {
        Err(_) if !code.is_new => Module::load(name, &compiler.compile(unit)?),
        loaded => loaded,
    }
}

/// Blocks with one thread per group of this many numbers.
fn blocks(elements: usize) -> usize {
    elements.div_ceil(GROUP * THREADS)
}

/// The same for rows, each of which begins with a group.
fn blocks_of_rows(rows: usize, width: usize) -> usize {
    (rows * width.div_ceil(GROUP)).div_ceil(THREADS)
}

/// Threads that hold a row in registers, a group each, if so many are allowed.
fn threads_of_row(width: usize, most: usize) -> usize {
    width.div_ceil(GROUP).next_multiple_of(WARP).min(most)
}
