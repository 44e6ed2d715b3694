//! Mixtures of experts on the CPU.

use half::bf16;

use super::{CpuBackend, Element, kernels, view, with_element};
use crate::{
    backend::{Backend, DType, ExpertOperations, Factors, Routed, Routing, Tensor, work},
    error::TrainError,
};

impl ExpertOperations for CpuBackend {
    fn route(&self, routing: Routing, routed: Routed<'_>) {
        let Routed { probabilities, weights, choices, .. } = routed;
        let dtype = probabilities.dtype();
        let [probabilities_view, weights_view, choices_view] = [probabilities, weights, choices].map(view);
        self.launch("expert_route", work::route(routed), move || {
            with_element!(dtype, E => {
                let (mut probabilities, mut weights) = (probabilities_view.write()?, weights_view.write()?);
                let mut choices = choices_view.write::<u32>()?;
                kernels::route::<<E as Element>::Sum>(routing, &mut probabilities, &mut weights, &mut choices);
                Ok(())
            })
        });
    }

    fn count_choices(&self, routing: Routing, routed: Routed<'_>) {
        let dtype = routed.counts.dtype();
        let [choices_view, counts_view] = [routed.choices, routed.counts].map(view);
        self.launch("expert_count_choices", work::count_choices(routed), move || {
            with_element!(dtype, E => {
                let (choices, mut counts) = (choices_view.read::<u32>()?, counts_view.write()?);
                kernels::count_choices::<<E as Element>::Sum>(routing, &choices, &mut counts);
                Ok(())
            })
        });
    }

    fn balance_loss(&self, routing: Routing, routed: Routed<'_>, total: &Tensor) {
        let dtype = routed.probabilities.dtype();
        let [probabilities_view, counts_view, total_view] = [routed.probabilities, routed.counts, total].map(view);
        self.launch("expert_balance_loss", work::balance_loss(routed, total), move || {
            with_element!(dtype, E => {
                let (probabilities, counts) = (probabilities_view.read()?, counts_view.read()?);
                let mut total = total_view.write()?;
                kernels::balance_loss::<<E as Element>::Sum>(routing, &probabilities, &counts, &mut total);
                Ok(())
            })
        });
    }

    fn route_backward(&self, routing: Routing, routed: Routed<'_>, d_weights: &Tensor, d_logits: &Tensor) {
        let dtype = d_logits.dtype();
        let Routed { probabilities, weights, choices, counts } = routed;
        let [probabilities_view, weights_view, choices_view] = [probabilities, weights, choices].map(view);
        let [counts_view, d_weights_view, d_logits_view] = [counts, d_weights, d_logits].map(view);
        self.launch("expert_route_backward", work::route_backward(routed, d_weights, d_logits), move || {
            with_element!(dtype, E => {
                let (probabilities, weights) = (probabilities_view.read()?, weights_view.read()?);
                let (choices, counts) = (choices_view.read::<u32>()?, counts_view.read()?);
                let routed = (&probabilities[..], &weights[..], &choices[..], &counts[..]);
                kernels::route_backward::<E>(routing, routed, &d_weights_view.read()?, &mut d_logits_view.write()?);
                Ok(())
            })
        });
    }

    fn choices(&self, choices: &Tensor) -> Result<Vec<u32>, TrainError> {
        self.streams.synchronize_compute()?;
        Ok(view(choices).read::<u32>()?.to_vec())
    }

    fn dispatch(&self, tokens: &Tensor, order: &Tensor, sorted: &Tensor, top_k: usize) {
        let dtype = tokens.dtype();
        let [tokens_view, order_view, sorted_view] = [tokens, order, sorted].map(view);
        self.launch("expert_dispatch", work::dispatch(order, sorted), move || {
            with_element!(dtype, E => {
                let (tokens, order) = (tokens_view.read::<E>()?, order_view.read::<u32>()?);
                kernels::dispatch(&tokens, &order, top_k, &mut sorted_view.write::<E>()?);
                Ok(())
            })
        });
    }

    fn combine(&self, sorted: &Tensor, places: &Tensor, weights: Option<&Tensor>, tokens: &Tensor, top_k: usize) {
        let dtype = tokens.dtype();
        let [sorted_view, places_view, tokens_view] = [sorted, places, tokens].map(view);
        let weights_view = weights.map(view);
        self.launch("expert_combine", work::combine(sorted, places, weights, tokens), move || {
            with_element!(dtype, E => {
                let (sorted, places) = (sorted_view.read::<E>()?, places_view.read::<u32>()?);
                let weights = weights_view.as_ref().map(|weights| weights.read()).transpose()?;
                kernels::combine(&sorted, &places, weights.as_deref(), top_k, &mut tokens_view.write::<E>()?);
                Ok(())
            })
        });
    }

    fn combine_backward(
        &self,
        d_tokens: &Tensor,
        (sorted, order, weights): (&Tensor, &Tensor, &Tensor),
        (d_sorted, d_weights): (&Tensor, &Tensor),
        top_k: usize,
    ) {
        let dtype = d_tokens.dtype();
        let [d_tokens_view, sorted_view, order_view, weights_view] = [d_tokens, sorted, order, weights].map(view);
        let [d_sorted_view, d_weights_view] = [d_sorted, d_weights].map(view);
        let takes = work::combine_backward((sorted, order, weights), (d_sorted, d_weights));
        self.launch("expert_combine_backward", takes, move || {
            with_element!(dtype, E => {
                let (d_tokens, sorted) = (d_tokens_view.read::<E>()?, sorted_view.read::<E>()?);
                let (order, weights) = (order_view.read::<u32>()?, weights_view.read()?);
                let (mut d_sorted, mut d_weights) = (d_sorted_view.write::<E>()?, d_weights_view.write()?);
                let of = (&sorted[..], &order[..], &weights[..]);
                kernels::combine_backward(&d_tokens, of, top_k, &mut d_sorted, &mut d_weights);
                Ok(())
            })
        });
    }

    fn products(&self, products: &[Factors]) {
        products.iter().for_each(|Factors { product, a, b, out }| self.matmul(*product, a, b, out));
    }
}

#[cfg(test)]
mod tests {
    use stepscope_collector::Recorder;
    use stepscope_traces::MemoryCategory;

    use super::*;
    use crate::backend::Stream;

    #[test]
    fn what_went_wrong_before_tokens_chose_is_told_in_the_end() {
        let backend = CpuBackend::start(Recorder::disabled()).unwrap();
        let choices = backend.allocate(4, DType::U32, MemoryCategory::Other);
        let fail = || Err(TrainError::Disagreement("out of paper".into()));
        backend.streams.launch(Stream::Compute, None, fail);
        backend.tell_later(backend.choices(&choices).unwrap_err());
        // Whoever asks again hears nothing new, and that is not what is told.
        let told = backend.synchronize().unwrap_err();
        assert!(told.to_string().contains("out of paper"), "{told}");
        backend.tell_later(backend.choices(&choices).unwrap_err());
        assert!(matches!(backend.synchronize(), Err(TrainError::FailedBefore)));
    }
}
