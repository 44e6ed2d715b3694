//! What a kernel does on a device: whether it computes, communicates, or only moves bytes.

use hashbrown::HashMap;

use crate::{ids::NameId, kernels::KernelKind, vocabulary::SpanKind};

/// What kernels do, each name looked up once.
#[derive(Debug, Default)]
pub(crate) struct DeviceWork(HashMap<NameId, SpanKind>);

impl DeviceWork {
    /// What a kernel of this name does.
    pub(crate) fn of_kernel(&mut self, id: NameId, name: &str) -> SpanKind {
        *self.0.entry(id).or_insert_with(|| kind_named(name))
    }
}

/// AMD's driver copies and fills memory with kernels of its own where it uses no copy engine.
fn kind_named(name: &str) -> SpanKind {
    match () {
        () if name.starts_with("__amd_rocclr_copy") => SpanKind::Copy,
        () if name.starts_with("__amd_rocclr_fill") => SpanKind::Set,
        () => KernelKind::communication(name).unwrap_or(SpanKind::Kernel),
    }
}

/// The name of a kernel as its program has it. AMD's tools name what describes the kernel to the device.
pub(crate) fn kernel_name(name: &str) -> &str {
    [" [clone .kd]", ".kd"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kernels_do() {
        for (name, kind) in [
            ("__amd_rocclr_copyBuffer", SpanKind::Copy),
            ("__amd_rocclr_fillBufferAligned", SpanKind::Set),
            ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", SpanKind::AllReduce),
            ("loop_add_fusion", SpanKind::Kernel),
        ] {
            assert_eq!(kind_named(name), kind, "{name}");
        }
        assert_eq!(kernel_name("loop_add_fusion.kd"), "loop_add_fusion");
        assert_eq!(kernel_name("f(long*) [clone .kd]"), "f(long*)");
    }
}
