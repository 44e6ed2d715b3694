//! NVTX as its injected libraries see it: tables of places where functions can be entered.

use std::ffi::{c_int, c_uint, c_void};

use super::calls;

/// What NVTX gives an injected library: tables by their numbers.
pub(crate) type GetExportTable = unsafe extern "C" fn(u32) -> *const c_void;

/// The number of the table that has the function for modules.
const CALLBACKS: u32 = 1;
/// Its modules: the first version's functions, and those with domains.
const CORE: c_uint = 1;
const CORE_WITH_DOMAINS: c_uint = 5;

/// The table of callbacks.
#[repr(C)]
struct Callbacks {
    size: usize,
    module: Option<unsafe extern "C" fn(c_uint, *mut FunctionTable, *mut c_uint) -> c_int>,
}

/// Places of functions, some of which are null.
type FunctionTable = *mut *mut Function;
type Function = *const c_void;

/// Enters our functions in a copy of NVTX. What we leave out, it does nothing for.
///
/// # Safety
///
/// The function is NVTX's.
pub(crate) unsafe fn attach(tables: GetExportTable) {
    // SAFETY: it takes any number, and tells null for those it does not know.
    let callbacks = unsafe { tables(CALLBACKS).cast::<Callbacks>().as_ref() };
    let module = callbacks.filter(|table| table.size >= size_of::<Callbacks>()).and_then(|table| table.module);
    let Some(module) = module else { return };
    let core: [(usize, Function); 8] = [
        (4, calls::range_start_with as Function),
        (5, calls::range_start as Function),
        (6, calls::range_start_wide as Function),
        (7, calls::range_end as Function),
        (8, calls::range_push_with as Function),
        (9, calls::range_push as Function),
        (10, calls::range_push_wide as Function),
        (11, calls::range_pop as Function),
    ];
    let with_domains: [(usize, Function); 8] = [
        (2, calls::domain_range_start as Function),
        (3, calls::domain_range_end as Function),
        (4, calls::domain_range_push as Function),
        (5, calls::domain_range_pop as Function),
        (10, calls::register_text as Function),
        (11, calls::register_wide_text as Function),
        (12, calls::create_domain as Function),
        (13, calls::create_wide_domain as Function),
    ];
    for (number, functions) in [(CORE, core), (CORE_WITH_DOMAINS, with_domains)] {
        let (mut table, mut size): (FunctionTable, c_uint) = (std::ptr::null_mut(), 0);
        // SAFETY: there are two places to write to; any number may be asked for.
        let known = unsafe { module(number, &mut table, &mut size) } != 0 && !table.is_null();
        for (place, function) in functions {
            if known && place < size as usize {
                // SAFETY: the table has so many places, and each that is not null is one to be written to now, before the
                // program's call goes on.
                unsafe {
                    let slot = *table.add(place);
                    if !slot.is_null() {
                        *slot = function;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::ptr;

    use super::*;

    /// A copy of NVTX, as an injected library sees it: its functions, and the tables of where they are.
    pub(crate) struct FakeNvtx {
        functions: [[Function; 17]; 2],
        places: [[*mut Function; 17]; 2],
    }

    thread_local! {
        static FAKE: std::cell::RefCell<Option<Box<FakeNvtx>>> = const { std::cell::RefCell::new(None) };
    }

    unsafe extern "C" fn fake_module(module: c_uint, table: *mut FunctionTable, size: *mut c_uint) -> c_int {
        let index = match module {
            1 => 0,
            5 => 1,
            _ => return 0,
        };
        FAKE.with_borrow_mut(|fake| {
            // SAFETY: as in `attach`.
            unsafe {
                *table = fake.as_mut().unwrap().places[index].as_mut_ptr();
                *size = 16;
            }
        });
        1
    }

    unsafe extern "C" fn fake_tables(number: u32) -> *const c_void {
        static CALLBACKS_TABLE: Callbacks = Callbacks { size: size_of::<Callbacks>(), module: Some(fake_module) };
        if number == 1 { ptr::from_ref(&CALLBACKS_TABLE).cast() } else { ptr::null() }
    }

    unsafe extern "C" fn no_tables(_: u32) -> *const c_void {
        ptr::null()
    }

    impl FakeNvtx {
        /// What is entered in each module after attaching.
        pub(crate) fn attached() -> [[Function; 17]; 2] {
            let mut fake = Box::new(FakeNvtx { functions: [[ptr::null(); 17]; 2], places: [[ptr::null_mut(); 17]; 2] });
            for module in 0..2 {
                for place in 1..16 {
                    fake.places[module][place] = &raw mut fake.functions[module][place];
                }
            }
            FAKE.set(Some(fake));
            // SAFETY: it behaves as NVTX does.
            unsafe { attach(fake_tables) };
            FAKE.take().unwrap().functions
        }
    }

    #[test]
    fn our_functions_are_entered_where_nvtx_has_them() {
        let [core, domains] = FakeNvtx::attached();
        let entered = |functions: [Function; 17]| -> Vec<usize> {
            (0..17).filter(|place| !functions[*place].is_null()).collect()
        };
        assert_eq!(entered(core), [4, 5, 6, 7, 8, 9, 10, 11]);
        assert_eq!(entered(domains), [2, 3, 4, 5, 10, 11, 12, 13]);
        assert_eq!(core[11], calls::range_pop as Function);
        // SAFETY: it has no table, and says so.
        unsafe { attach(no_tables) };
    }
}
