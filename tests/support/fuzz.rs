//! Fuzzing: damaged copies of real inputs, and what reading one may cost. Test crates take this file in by its path.
//!
//! A target is a test that says `fuzz!(seeds, read)`. With `cargo test` it reads its seeds and some thousands of damaged copies
//! (`BOLERO_RANDOM_ITERATIONS` says how many); `cargo bolero test` lets libFuzzer choose the damage by what it makes the code do.

#![allow(unsafe_code, reason = "an allocator is unsafe to write")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ops::Bound,
    time::Duration,
};

use bolero::{Driver, ValueGenerator};
use nix::time::{ClockId, clock_gettime};

/// How many damaged inputs `cargo test` reads for each target.
pub(crate) const ITERATIONS: usize = 500;

/// What reading takes of any input, and of each of its bytes: ten times as much as was ever seen, and far from what hangs or
/// unpacks without end.
const MEMORY: u64 = 64 << 20;
const MEMORY_PER_BYTE: u64 = 2_000;
const TIME: Duration = Duration::from_secs(1);
const TIME_PER_BYTE: Duration = Duration::from_micros(20);

/// Reads seeds, which can be read, and damaged copies of them. Whatever comes of that, it does not panic, and costs no more than
/// it may.
macro_rules! fuzz {
    ($seeds:expr, $read:expr) => {{
        let (seeds, read): (Vec<Vec<u8>>, _) = ($seeds, $read);
        seeds.iter().for_each(|seed| assert!(crate::fuzz::within_bounds(seed, &read), "a seed cannot be read"));
        bolero::check!().with_generator(crate::fuzz::Damaged(seeds)).with_iterations(crate::fuzz::ITERATIONS).for_each(
            |bytes: &Vec<u8>| {
                crate::fuzz::within_bounds(bytes, &read);
            },
        );
    }};
}
pub(crate) use fuzz;

/// Makes damaged copies of these, and bytes that are a copy of nothing.
pub(crate) struct Damaged(pub(crate) Vec<Vec<u8>>);

impl ValueGenerator for Damaged {
    type Output = Vec<u8>;

    fn generate<D: Driver>(&self, driver: &mut D) -> Option<Vec<u8>> {
        let seed = below(driver, 8 * self.0.len() + 1)? / 8;
        let Some(seed) = self.0.get(seed) else { return driver.produce() };
        let mut bytes = seed.clone();
        for _ in 0..=below(driver, 4)? {
            damage(&mut bytes, driver)?;
        }
        Some(bytes)
    }
}

/// A number below another, or zero.
fn below(driver: &mut impl Driver, end: usize) -> Option<usize> {
    driver.gen_usize(Bound::Included(&0), Bound::Included(&end.saturating_sub(1)))
}

/// What means something in one format or another.
const TELLING: [u8; 12] = [0, 1, 0x7f, 0x80, 0xff, b'"', b'{', b']', b'-', b'.', b'\n', b'9'];
/// Databases and heads of files are made of such pieces.
const PAGE: usize = 4096;

fn damage(bytes: &mut Vec<u8>, driver: &mut impl Driver) -> Option<()> {
    let at = below(driver, bytes.len())?;
    match below(driver, 12)? {
        kind if bytes.is_empty() || kind == 0 => {
            let new: Vec<u8> = driver.produce()?;
            bytes.splice(at..at, new);
        }
        1..=3 => bytes[at] ^= 1 << below(driver, 8)?,
        4 | 5 => bytes[at] = TELLING[below(driver, TELLING.len())?],
        6 => bytes.truncate(at),
        7 => drop(bytes.drain(at..bytes.len().min(at + 1 + below(driver, 40)?))),
        8 => {
            let end = bytes.len().min(at + 1 + below(driver, 512)?);
            bytes[at..end].iter_mut().try_for_each(|byte| driver.produce().map(|new| *byte = new))?;
        }
        9 if bytes.len() >= 2 * PAGE => {
            let pages = bytes.len() / PAGE;
            let (from, to) = (PAGE * below(driver, pages)?, PAGE * below(driver, pages)?);
            bytes.copy_within(from..from + PAGE, to);
        }
        // The heads of pages say where everything is.
        10 => {
            let at = at / PAGE * PAGE + below(driver, 64)?;
            bytes.get_mut(at).into_iter().for_each(|byte| *byte = byte.wrapping_add(1));
        }
        _ => {
            let from = below(driver, bytes.len())?;
            let piece = bytes[from..bytes.len().min(from + 1 + below(driver, 40)?)].to_vec();
            bytes.splice(at..at, piece);
        }
    }
    Some(())
}

/// Reads bytes, and says whether they can be read.
///
/// # Panics
/// When this thread computes for longer or takes more memory than that may take.
pub(crate) fn within_bounds(input: &[u8], read: &impl Fn(&[u8]) -> bool) -> bool {
    let bytes = input.len() as u64;
    let (before, began) = (HELD.get(), computed());
    MOST_HELD.set(before);
    let can_be_read = read(input);
    let (took, held) = (computed() - began, (MOST_HELD.get() - before) as u64);
    let (most_time, most_memory) = (TIME + TIME_PER_BYTE * bytes as u32, MEMORY + MEMORY_PER_BYTE * bytes);
    assert!(took <= most_time, "{bytes} bytes took {took:?}");
    assert!(held <= most_memory, "{bytes} bytes took {held} bytes of memory");
    can_be_read
}

/// How long this thread has computed: what other programs do beside it does not count.
fn computed() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

thread_local! {
    /// Bytes that this thread has taken and not given back, and the most of it.
    static HELD: Cell<i64> = const { Cell::new(0) };
    static MOST_HELD: Cell<i64> = const { Cell::new(0) };
}

/// The system's allocator, which counts.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: i64) {
    // A thread that ends has no counters any more.
    let held = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        held.get()
    });
    MOST_HELD.try_with(|most| most.set(most.get().max(held.unwrap_or(0)))).unwrap_or(());
}

// SAFETY: all memory is the system allocator's, which keeps what is promised; counters are plain cells that allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller keeps the same promises to this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the pointer comes from the system's allocator, with this layout, as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}
