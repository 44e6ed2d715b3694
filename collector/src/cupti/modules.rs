//! Memory of the device that modules take: their data, and the code of the kernels that ran.
//!
//! By default the driver loads a kernel when it is first used, and libraries have thousands that never are. So a module's
//! whole size says little.
#![allow(unsafe_code)]

use std::{
    collections::HashMap,
    env,
    ffi::c_void,
    hash::{BuildHasher, RandomState},
    slice,
    sync::{LazyLock, Mutex},
};

use cudarc::cupti::sys::{CUpti_CallbackIdResource as Resource, CUpti_ModuleResourceData, CUpti_ResourceData};
use stepscope_traces::{MemoryHolder, Nanos, now};

use super::{
    cubin::{self, Part},
    held_memory,
};
use crate::lock::lock;

/// What is watched.
pub(crate) const RESOURCES: [u32; 2] = [LOADED, UNLOADING];
const LOADED: u32 = Resource::CUPTI_CBID_RESOURCE_MODULE_LOADED as u32;
const UNLOADING: u32 = Resource::CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING as u32;

/// How many kernels that have not run are known.
const MOST_KERNELS: usize = 1 << 18;

/// The modules of this process.
static MODULES: LazyLock<Mutex<Modules>> = LazyLock::new(|| {
    let is_eager = env::var("CUDA_MODULE_LOADING").is_ok_and(|mode| mode.eq_ignore_ascii_case("eager"));
    Mutex::new(Modules { is_eager, ..Modules::default() })
});

/// A module of a context.
type Module = (usize, u32);

#[derive(Default)]
struct Modules {
    /// Whether kernels are loaded with their module.
    is_eager: bool,
    /// What is loaded of each.
    loaded: HashMap<Module, u64>,
    /// The kernels that are not loaded yet, by the hashes of their names.
    waiting: HashMap<u64, Vec<(Module, u64)>>,
    hashes: RandomState,
}

/// A module was loaded, or is about to be unloaded.
///
/// # Safety
///
/// The data is what CUPTI says of this resource.
pub(crate) unsafe fn changed(resource: u32, data: *const c_void) {
    // SAFETY: as the caller promises, that is what resources come with; it is there until this returns.
    let (module, cubin) = unsafe {
        let Some(data) = data.cast::<CUpti_ResourceData>().as_ref() else { return };
        let descriptor = data.resourceDescriptor.cast::<CUpti_ModuleResourceData>();
        let Some(told) = descriptor.as_ref().filter(|_| RESOURCES.contains(&resource)) else { return };
        let is_there = !told.pCubin.is_null();
        let cubin = if is_there { slice::from_raw_parts(told.pCubin.cast(), told.cubinSize) } else { &[] };
        ((data.context as usize, told.moduleId), cubin)
    };
    change(now(), |modules| match resource {
        LOADED => modules.load(module, cubin),
        _ => modules.unload(module),
    });
}

/// A kernel ran for the first time, or so it seems.
pub(crate) fn ran(time: Nanos, kernel: &[u8]) {
    change(time, |modules| modules.ran(kernel));
}

fn change(time: Nanos, change: impl FnOnce(&mut Modules)) {
    let mut modules = lock(&MODULES);
    change(&mut modules);
    let bytes = modules.loaded.values().sum();
    held_memory::with(|held| held.set(time, MemoryHolder::Modules, bytes));
}

impl Modules {
    fn load(&mut self, module: Module, cubin: &[u8]) {
        self.unload(module);
        let mut at_once = 0;
        for (part, bytes) in cubin::parts(cubin) {
            match part {
                Part::Kernel(name) if !self.is_eager && self.waiting.len() < MOST_KERNELS => {
                    self.waiting.entry(self.hashes.hash_one(name)).or_default().push((module, bytes));
                }
                Part::Kernel(_) if !self.is_eager => {}
                Part::Kernel(_) | Part::Data => at_once += bytes,
            }
        }
        self.loaded.insert(module, at_once);
    }

    fn unload(&mut self, module: Module) {
        if self.loaded.remove(&module).is_some() {
            self.waiting.retain(|_, parts| {
                parts.retain(|(of, _)| *of != module);
                !parts.is_empty()
            });
        }
    }

    fn ran(&mut self, kernel: &[u8]) {
        for (module, bytes) in self.waiting.remove(&self.hashes.hash_one(kernel)).unwrap_or_default() {
            self.loaded.entry(module).and_modify(|loaded| *loaded += bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::cubin::tests::cubin, *};

    fn sum(modules: &Modules) -> u64 {
        modules.loaded.values().sum()
    }

    #[test]
    fn kernels_count_when_they_ran_and_data_at_once() {
        let bytes = cubin(&[(".text.a", 100), (".nv.constant0.a", 10), (".text.b", 1000), (".nv.global", 7)]);
        let mut modules = Modules::default();
        modules.load((1, 1), &bytes);
        assert_eq!(sum(&modules), 7);
        for _ in 0..2 {
            modules.ran(b"a");
            modules.ran(b"unknown");
            assert_eq!(sum(&modules), 117);
        }
        modules.unload((1, 1));
        modules.ran(b"b");
        assert_eq!((sum(&modules), modules.waiting.len()), (0, 0));
    }

    #[test]
    fn where_all_is_loaded_at_once_all_counts() {
        let mut modules = Modules { is_eager: true, ..Modules::default() };
        modules.load((1, 1), &cubin(&[(".text.a", 100), (".nv.global", 7)]));
        modules.load((1, 2), b"no cubin");
        assert_eq!(sum(&modules), 107);
    }
}
