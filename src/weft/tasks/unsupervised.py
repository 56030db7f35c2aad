"""Rows of nodes without labels: those that meet on random walks are alike (GraphSAGE, 2017)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from safetensors.torch import save
from torch import Tensor, nn

from weft.config import Range
from weft.graph.ends import edge_ends, only
from weft.graph.graph import Graph
from weft.graph.views import GraphView
from weft.reading.damage import reading
from weft.reading.tensors import expect_columns, load_tensors
from weft.tasks.base import Targets, Total, tasks
from weft.tasks.link_prediction import LinkPrediction
from weft.tasks.loss import Loss
from weft.tasks.negatives import ALPHA, End, Nodes, ends_of
from weft.tasks.pair_loss import pair_loss
from weft.tasks.pairs import Hide, head_for
from weft.tasks.probe import Probe
from weft.tasks.scores import Scorer
from weft.tasks.split import target_relations
from weft.tasks.walks import walk_pairs

DEGREES = "degrees.safetensors"
"""What a folder of parts holds how often each node is met in: its edges into and out of it."""
DRAWN = {"name": "joint", "count": 20, "alpha": ALPHA}


@tasks.add("unsupervised")
class Unsupervised(LinkPrediction):
    """Learn rows of nodes without labels: those that meet on short random walks are to be alike.

    From each node `walks` walks of `length` steps leave along the edges, from source to target, drawn once by
    `seed`; a node and each other node that a walk meets are a pair, and an epoch has each pair once. The loss
    of a pair is -log σ(zᵤ·zᵥ) - Σ log σ(-zᵤ·zₙ) over `negatives`, by default 20 for all pairs of a step, by
    degree^0.75. (GraphSAGE's experiments have 50 walks of 5 steps.) `width` is how wide a node's row is; z
    are rows scaled to length 1, as the paper has them, or with `score` "dot" the rows as they are.

    Edges of the `target` relations are walked along, by default all of a graph with one node type. `split`
    holds some of them out, as link_prediction does: they are neither messages nor walked along, and ranked
    among the negatives of `evaluate`. Where nodes have classes or labels, scores have `probe` too.
    """

    name: ClassVar[str] = "unsupervised"
    losses: ClassVar[Mapping[str, Loss]] = {"negative_sampling": pair_loss("negative_sampling")}
    usual_hide: ClassVar[Hide] = "none"
    beside: ClassVar[tuple[str, ...]] = ("probe",)
    probe: Probe | None = None
    degrees: dict[End, Tensor]

    def __init__(
        self,
        *,
        length: Annotated[int, Range(least=1)] = 5,
        walks: Annotated[int, Range(least=1)] = 10,
        seed: Annotated[int, Range(least=0)] = 0,
        width: Annotated[int, Range(least=1)] = 64,
        score: Literal["cosine", "dot"] = "cosine",
        negatives: str | Mapping[str, Any] | None = None,
        target: Any = None,
        split: Mapping[str, Any] | None = None,
        evaluate: str | Mapping[str, Any] | None = None,
        loss: str | Loss = "auto",
    ) -> None:
        super().__init__(
            target=target,
            split=split,
            width=width,
            score=score,
            negatives=DRAWN if negatives is None else negatives,
            evaluate=evaluate,
            loss=loss,
        )
        self.length, self.walks, self.seed = length, walks, seed

    def learn(self, graph: Graph, shown: Graph) -> None:
        """Walk along the edges that are shown: what is met is what is trained on."""
        super().learn(graph, shown)
        walked = target_relations(shown, self.target)
        paths = shown if bool(walked.all()) else only(shown, walked[edge_ends(shown)[2]])
        met = walk_pairs(paths, length=self.length, walks=self.walks, seed=self.seed)
        self._pairs = {split: met if split == "train" else held for split, held in self._pairs.items()}
        src, dst, _ = edge_ends(paths)
        self.degrees = ends_of(src, dst, paths.num_nodes)

    def files(self) -> dict[str, bytes]:
        """Return the pairs, the degrees, and the known links."""
        return {**super().files(), DEGREES: save({"dst": self.degrees["dst"], "src": self.degrees["src"]})}

    def read(self, folder: Path) -> None:
        """Take what lies beside the parts."""
        super().read(folder)
        degrees = load_tensors(folder / DEGREES)
        with reading(folder / DEGREES):
            self.degrees = {"dst": degrees["dst"], "src": degrees["src"]}
        expect_columns(degrees, folder / DEGREES)

    def targets(self, graph: GraphView, total: Total) -> dict[str, Targets]:
        """Return the own pairs of every split, and find out whether there are labels to probe for."""
        self.probe = Probe.of(graph, total)
        return super().targets(graph, total)

    def scores_of_rows(self, model: nn.Module, h: Tensor, total: Total) -> dict[str, dict[str, float]]:
        """Return what a linear model reads off the rows, where nodes have labels."""
        if self.probe is None:
            return {}
        scorer: Scorer = head_for(model, h)
        found = self.probe.scores(lambda held: scorer.key(h[held.places]), total)
        return {split: {"probe": score} for split, score in found.items()}

    def _nodes(self, graph: GraphView) -> Nodes:
        """Return what negatives are drawn from: any node that an edge is walked along to, by its degree."""
        walked = target_relations(graph, self.target).tolist()
        kinds = [kind for kind, yes in zip(graph.edge_types, walked) if yes]
        return Nodes.between(graph, kinds, self.degrees)
