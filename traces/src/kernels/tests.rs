use super::*;
use crate::fuzz::fuzz;

/// Names of public traces and of our own, sorted by hand.
const SORTED: &str = include_str!("../../tests/fixtures/kernel-names.tsv");

#[test]
fn real_names_are_sorted_as_by_hand() {
    let lines: Vec<Vec<&str>> = SORTED.lines().map(|line| line.split('\t').collect()).collect();
    assert!(lines.len() >= 400, "{} names", lines.len());
    let wrong: Vec<String> = lines
        .iter()
        .filter(|line| KernelKind::of(line[2]).family.word() != line[0])
        .map(|line| format!("{} is no {}: {}", line[0], KernelKind::of(line[2]).family.word(), line[2]))
        .collect();
    let share = wrong.len() as f64 / lines.len() as f64;
    assert!(share <= 0.01, "{} of {} names are wrong:\n{}", wrong.len(), lines.len(), wrong.join("\n"));
}

#[test]
fn fuzzed_names() {
    let names = SORTED.lines().filter_map(|line| Some(line.split('\t').nth(2)?.as_bytes().to_vec()));
    fuzz!(names.step_by(10).collect(), |bytes: &[u8]| {
        let name = String::from_utf8_lossy(bytes);
        !KernelKind::of(&name).family.word().is_empty() && KernelKind::communication(&name).is_none_or(|_| true)
    });
}

#[test]
fn kernels_people_know_are_sorted_right() {
    for (name, family) in [
        ("matmul_nt", Family::Matmul),
        ("attention_backward", Family::Attention),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>", Family::Attention),
        ("rms_norm_backward", Family::Norm),
        ("adamw", Family::Optimizer),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>", Family::Optimizer),
        ("loss_backward", Family::Loss),
        ("embedding", Family::Embedding),
        ("swiglu", Family::Elementwise),
        ("rope_backward", Family::Elementwise),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::f(int)::{lambda()#1}>", Family::Elementwise),
        ("my_kernel", Family::Other),
    ] {
        assert_eq!(KernelKind::of(name).family, family, "{name}");
    }
}

#[test]
fn the_softmax_of_attention_is_told_from_that_of_a_loss() {
    for (name, is_softmax) in [
        ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(float*)", true),
        ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, true>(float*)", true),
        ("void (anonymous namespace)::softmax_warp_backward<float, float, float, 10, true, false>(float*)", false),
        (
            "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, at::native::SoftMaxForwardEpilogue>(int)",
            true,
        ),
        (
            "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, at::native::LogSoftMaxForwardEpilogue>(int)",
            false,
        ),
        ("void scaled_upper_triang_masked_softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 11>(int)", true),
        ("triton_per_fused__softmax_add_3", true),
        ("triton_red_fused__log_softmax_nll_loss_forward_view_2", false),
        ("void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float>(float*)", false),
        ("void topkGatingSoftmax<8, 64, 4, 16>(float const*, bool const*)", false),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>", false),
    ] {
        assert_eq!(KernelKind::of(name).is_softmax, is_softmax, "{name}");
    }
}

#[test]
fn communication_is_told_by_its_operation() {
    for (name, kind) in [
        ("ncclDevKernel_AllReduce_bf16_RING(ncclDevKernelArgsStorage<4096ul>)", Some(SpanKind::AllReduce)),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevComm*)", Some(SpanKind::ReduceScatter)),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", Some(SpanKind::Communication)),
        ("ncclDevKernel_Generic_4", Some(SpanKind::Communication)),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", Some(SpanKind::AllReduce)),
        ("_Z35ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE", Some(SpanKind::AllReduce)),
        ("ncclSymkDevKernel_AllReduce_AGxLL_R_Sum_f16", Some(SpanKind::AllReduce)),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", Some(SpanKind::AllGather)),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t", Some(SpanKind::Broadcast)),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", Some(SpanKind::Reduce)),
        ("_ZN4nccl5utilsE_my_Kernel_of_mine", None),
        ("void dpsk::ep::internode::combine<false, 8, __nv_bfloat16, 8, 2, 16, 24>(int4*)", Some(SpanKind::AllToAll)),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)", Some(SpanKind::AllReduce)),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(int)", Some(SpanKind::AllReduce)),
        ("triton_poi_fused_all_gather_into_tensor_wait_tensor_3", None),
        ("void at::native::reduce_kernel<512, 1>(int)", None),
        ("nvjet_sm90_tst_128x256_64x4_4x2_h_bz_coopA_NNN", None),
    ] {
        assert_eq!(KernelKind::communication(name), kind, "{name}");
    }
    for (name, kind) in [
        ("_allgather_base", SpanKind::AllGather),
        ("reduce_scatter_tensor_coalesced", SpanKind::ReduceScatter),
        ("all_to_allv", SpanKind::AllToAll),
        ("send", SpanKind::Send),
        ("recv", SpanKind::Receive),
        ("wait", SpanKind::Communication),
    ] {
        assert_eq!(communication_named(name), kind, "{name}");
    }
}
