//! How fast kernels are and where they are under the roof of their device, in words.

use stepscope_analyzer::{Analysis, Bound, KernelRates};
use stepscope_plan::text;

/// How fast they are; of communication and copies, a rate would be another figure's.
pub(super) fn rate(rates: &KernelRates) -> Option<String> {
    rates.flops_per_second.map(text::flops).or(rates.bytes_per_second.map(text::bandwidth))
}

/// How near they are to their roof, or to their peak where it is not known what they wait for.
pub(super) fn share(rates: &KernelRates) -> Option<f64> {
    rates.roof_share.or(rates.peak_share)
}

/// That, and what they wait for.
pub(super) fn words(rates: &KernelRates) -> Option<String> {
    let roof = match rates.bound.filter(|_| rates.roof_share.is_some()) {
        Some(Bound::Compute) => "compute",
        Some(Bound::Memory) => "memory",
        None => "peak",
    };
    share(rates).map(|share| format!("{roof} {:>6}", text::percent(share)))
}

/// Why no kernel has a roof, if none has.
pub(super) fn why_none(analysis: &Analysis) -> Option<&'static str> {
    let has = |known: fn(&KernelRates) -> bool| analysis.kernels.iter().any(|kernel| known(&kernel.rates));
    if has(|rates| share(rates).is_some()) {
        None
    } else if analysis.run.ranks_on_a_device.is_some() {
        Some("ranks share this GPU")
    } else if has(|rates| rate(rates).is_some()) {
        Some("the peak of this device is unknown")
    } else {
        Some("FLOPs and bytes of kernels are not recorded")
    }
}

/// Where kernels are under the roof, after what else there is to say of them.
pub(super) fn position(first: String, rates: &KernelRates, analysis: Option<&Analysis>) -> String {
    let roofline = analysis.and_then(|analysis| analysis.roofline.as_ref());
    let is_shared = analysis.is_some_and(|analysis| analysis.run.ranks_on_a_device.is_some());
    let bandwidth = roofline.and_then(|roofline| roofline.memory_bandwidth);
    // The numbers that they multiply may have a peak of their own.
    let own_peak = rates.flops_per_second.zip(rates.peak_share).filter(|(_, share)| *share > 0.0);
    let peak = own_peak.map(|(rate, share)| rate / share);
    let mut words = vec![first];
    if let Some(rate) = rates.flops_per_second {
        let of = rates
            .peak_share
            .zip(peak)
            .map(|(share, peak)| format!(", {} of peak {}", text::percent(share), text::flops(peak)));
        words.push(format!("{}{}", text::flops(rate), of.unwrap_or_default()));
    }
    if let Some(rate) = rates.bytes_per_second {
        let most = bandwidth.filter(|_| rates.bound.is_some());
        let of = most.map(|most| format!(", {} of bandwidth {}", text::percent(rate / most), text::bandwidth(most)));
        words.push(format!("{}{}", text::bandwidth(rate), of.unwrap_or_default()));
    }
    let ridge = peak.zip(bandwidth).map(|(peak, bandwidth)| peak / bandwidth);
    if let Some((at, ridge)) = rates.arithmetic_intensity.zip(ridge) {
        let waits = match rates.bound {
            Some(Bound::Memory) => ": memory-bound",
            Some(Bound::Compute) => ": compute-bound",
            None => "",
        };
        words.push(format!("{} FLOP/B, ridge at {}{waits}", text::intensity(at), text::intensity(ridge)));
    }
    match words.len() {
        1 => words.push("its FLOPs and bytes are unknown".into()),
        _ if is_shared => words.push("ranks share a GPU, so its peak is unknown".into()),
        _ => {}
    }
    words.join(" · ")
}
