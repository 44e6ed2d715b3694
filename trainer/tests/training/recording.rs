use std::collections::HashMap;

use stepscope_plan::{Coordinates, ParallelLayout, Part, Placement, Zero};
use stepscope_traces::{Layer, MemoryOperation, Phase, SpanKind, Step};

use crate::support::{config, layouts, recorded, single};

#[test]
fn every_operation_says_what_it_is_and_where_it_belongs() {
    for (name, config) in layouts().into_iter().step_by(3) {
        for data in recorded(&config) {
            for span in data.spans.rows().filter(|span| span.kind == SpanKind::Kernel) {
                let kernel = data.names.get(span.name).unwrap();
                let known = (span.flops.is_some(), span.bytes.is_some(), span.stream.is_some(), span.stage.is_some());
                assert_eq!(known, (true, true, true, true), "{name}: {kernel}");
                assert!(span.step.is_some() && span.phase.is_some(), "{name}: {kernel}");
                let in_pass = matches!(span.phase, Some(Phase::Forward | Phase::Backward | Phase::Recompute));
                assert_eq!(span.micro_batch.is_some(), in_pass, "{name}: {kernel}");
                if ["attention", "swiglu", "rope"].iter().any(|part| kernel.starts_with(part)) {
                    assert!(span.layer.is_some(), "{name}: {kernel}");
                }
            }
            let steps: Vec<Step> =
                data.spans.rows().filter(|span| span.kind == SpanKind::Step).filter_map(|span| span.step).collect();
            assert_eq!(steps, (0..5).map(Step).collect::<Vec<_>>(), "{name}");
        }
    }
}

#[test]
fn all_memory_comes_back() {
    for (name, config) in layouts().into_iter().step_by(4) {
        for data in recorded(&config) {
            let (mut live, mut reserved) = (HashMap::new(), HashMap::new());
            // Threads tell what they do in order, each for itself.
            let mut events: Vec<_> = data.memory.rows().collect();
            events.sort_by_key(|event| event.time_ns);
            for event in events {
                let address = event.address;
                match event.op {
                    MemoryOperation::Alloc => assert_eq!(live.insert(address, event.bytes), None, "{name}"),
                    MemoryOperation::Free => assert!(live.remove(&address).is_some(), "{name}"),
                    MemoryOperation::Reserve => assert_eq!(reserved.insert(address, event.bytes), None, "{name}"),
                    MemoryOperation::Release => assert!(reserved.remove(&address).is_some(), "{name}"),
                }
            }
            assert!(live.is_empty() && reserved.is_empty(), "{name}: {live:?} {reserved:?}");
        }
    }
}

#[test]
fn what_is_gathered_ahead_carries_its_own_layer() {
    let layout = ParallelLayout { dp: 2, micro_batch: 2, micro_batches: 2, zero: Zero::Three, ..single() };
    let config = config(layout);
    let placement = Placement::of(&config.model, &layout, Coordinates { stage: 0, dp: 0, cp: 0, tp: 0 });
    let bytes_of = |part: Part| placement.units.iter().find(|unit| unit.part == part).map(|unit| 4 * unit.elements());
    let (layer, embedding, head) = (bytes_of(Part::Layer(0)), bytes_of(Part::Embedding), bytes_of(Part::Head));
    let data = &recorded(&config)[1];
    let mut seen = HashMap::new();
    for span in data.spans.rows().filter(|span| span.kind.is_communication() && span.bytes > Some(8)) {
        match span.layer {
            Some(number) => assert_eq!(span.bytes, layer, "{number:?}"),
            None => assert!(span.bytes == embedding || span.bytes == head),
        }
        *seen.entry((span.kind, span.layer)).or_insert(0) += 1;
    }
    // Five steps of two micro-batches: each layer is gathered for both passes, and reduced once.
    for number in (0..8).map(|layer| Some(Layer(layer))) {
        assert_eq!(seen[&(SpanKind::AllGather, number)], 20);
        assert_eq!(seen[&(SpanKind::ReduceScatter, number)], 10);
    }
}
