//! Mixtures of experts on a GPU.

use stepscope_collector::LaunchInfo;

use super::{
    CudaBackend, array,
    grouped::{Grouped, OfArrays},
    kernels::{Kernels, Part, RoutedArrays},
    transfer,
};
use crate::{
    backend::{DType, ExpertOperations, Factors, Routed, Routing, Stream, Tensor, work},
    error::TrainError,
};

fn arrays(routed: Routed<'_>) -> RoutedArrays {
    let Routed { probabilities, weights, choices, counts } = routed;
    let [probabilities, weights, choices, counts] = [probabilities, weights, choices, counts].map(array);
    RoutedArrays { probabilities, weights, choices, counts }
}

impl CudaBackend {
    /// What multiplies matrices at once, if there is something.
    fn grouped(&self) -> Result<Option<&Grouped>, TrainError> {
        if let Some(grouped) = self.grouped.get() {
            return Ok(grouped.as_ref());
        }
        let opened = Grouped::open(self.stream(), self.matmul_workspace()?)?;
        Ok(self.grouped.get_or_init(|| opened).as_ref())
    }

    /// Copies parts of tensors on a stream.
    pub(crate) fn copy_parts(&self, stream: Stream, parts: &[Part]) {
        if parts.is_empty() {
            return;
        }
        let bytes = 2 * parts.iter().map(|part| part.bytes).sum::<u64>();
        let _launching = self.recorder.launching(LaunchInfo { bytes: Some(bytes), ..LaunchInfo::default() });
        self.attempt(|| self.kernels.copy_parts(self.device.stream(stream).cu_stream(), parts));
    }
}

impl ExpertOperations for CudaBackend {
    fn route(&self, routing: Routing, routed: Routed<'_>) {
        self.launch(work::route(routed), |stream| self.kernels.expert_route(stream, routing, arrays(routed)));
    }

    fn count_choices(&self, routing: Routing, routed: Routed<'_>) {
        self.launch(work::count_choices(routed), |stream| {
            self.kernels.expert_count_choices(stream, routing, arrays(routed))
        });
    }

    fn balance_loss(&self, routing: Routing, routed: Routed<'_>, total: &Tensor) {
        self.launch(work::balance_loss(routed, total), |stream| {
            let (_scratch, room) = self.scratch(Kernels::EXPERT_WORKSPACE_BYTES)?;
            self.kernels.expert_balance_loss(stream, routing, arrays(routed), array(total), room)
        });
    }

    fn route_backward(&self, routing: Routing, routed: Routed<'_>, d_weights: &Tensor, d_logits: &Tensor) {
        self.launch(work::route_backward(routed, d_weights, d_logits), |stream| {
            self.kernels.expert_route_backward(stream, routing, arrays(routed), array(d_weights), array(d_logits))
        });
    }

    fn choices(&self, choices: &Tensor) -> Result<Vec<u32>, TrainError> {
        self.read(|stream| match choices.dtype() {
            DType::U32 => transfer::download::<u32>(stream, array(choices)),
            other => Err(TrainError::Disagreement(format!("choices in {other:?}"))),
        })
    }

    fn dispatch(&self, tokens: &Tensor, order: &Tensor, sorted: &Tensor, top_k: usize) {
        self.launch(work::dispatch(order, sorted), |stream| {
            self.kernels.expert_dispatch(stream, array(tokens), array(order), array(sorted), top_k)
        });
    }

    fn combine(&self, sorted: &Tensor, places: &Tensor, weights: Option<&Tensor>, tokens: &Tensor, top_k: usize) {
        self.launch(work::combine(sorted, places, weights, tokens), |stream| {
            let [sorted, places, tokens] = [sorted, places, tokens].map(array);
            self.kernels.expert_combine(stream, sorted, places, weights.map(array), tokens, top_k)
        });
    }

    fn combine_backward(
        &self,
        d_tokens: &Tensor,
        (sorted, order, weights): (&Tensor, &Tensor, &Tensor),
        (d_sorted, d_weights): (&Tensor, &Tensor),
        top_k: usize,
    ) {
        let takes = work::combine_backward((sorted, order, weights), (d_sorted, d_weights));
        self.launch(takes, |stream| {
            let of = (array(sorted), array(order), array(weights));
            let gradients = (array(d_sorted), array(d_weights));
            self.kernels.expert_combine_backward(stream, array(d_tokens), of, gradients, top_k)
        });
    }

    fn products(&self, products: &[Factors]) {
        let of = |Factors { product, a, b, out }: &Factors| (*product, [a, b, out].map(array));
        let arrays: Vec<OfArrays> = products.iter().map(of).collect();
        let mut at_once = None;
        if Grouped::takes(&arrays) {
            self.attempt(|| {
                at_once = self.grouped()?;
                Ok(())
            });
        }
        if let Some(grouped) = at_once {
            self.launch(work::products(products), |stream| {
                let addresses = Grouped::addresses(&arrays);
                let (_scratch, there) = self.scratch(size_of_val(&addresses[..]))?;
                self.uploads.upload(stream, addresses, there)?;
                grouped.launch(&arrays, there)
            });
            return;
        }
        for (Factors { product, a, b, out }, (_, arrays)) in products.iter().zip(arrays) {
            self.launch(work::matmul(*product, a, b, out), |stream| {
                self.matmul.launch_one_of_many(stream, *product, arrays, self.matmul_workspace()?)
            });
        }
    }
}

#[cfg(test)]
mod tests;
