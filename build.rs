//! What the binary is built with.

#[path = "build/version.rs"]
mod version;

fn main() {
    version::emit();
}
