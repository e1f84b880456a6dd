"""What the gate has engines read: prompts to continue, and sequences whose every token is given.

Half of the sequences are text (several languages and scripts, code, numbers), half random tokens, in turns:
text goes where a trained model's weights go, random tokens reach rows and experts that text rarely does.
Without a tokenizer all are random.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from autolaunch.race.workload import random_prompts

PROMPTS = (
    "The capital of France is",
    "Question: Which number is larger, 9.9 or 9.11?\nAnswer:",
    "1, 2, 3, 4, 5, 6,",
    "def add(a, b):\n    return",
    "Once upon a time, in a small village by the sea,",
    "The three primary colours are red,",
)
PASSAGES = (
    "The harbour lies on the north side of the bay. In the morning the boats leave before sunrise, and by "
    "noon most of them are back. Nets are hung over the wall to dry, and somebody always mends one.",
    "Water boils at a lower temperature on a mountain, because the air above it weighs less. At three "
    "thousand metres it boils at about ninety degrees, so potatoes take longer to cook there.",
    "To replace the wheel, loosen the nuts first, then lift the car. Tighten them crosswise, a little at a "
    "time, and check them again after fifty kilometres.",
    "Der Zug nach Norden fährt heute von Gleis sieben ab. Wegen Bauarbeiten hält er nicht in jedem Ort; "
    "Reisende werden gebeten, auf die Anzeigen zu achten und etwas mehr Zeit einzuplanen.",
    "Le marché ouvre à huit heures. On y trouve des pommes, du fromage, des œufs frais et, en automne, des "
    "champignons. Vers midi, les marchands commencent à ranger leurs étals.",
    "La biblioteca cierra los lunes. Los demás días se puede leer en la sala grande, junto a las ventanas, "
    "o pedir prestados hasta cinco libros durante tres semanas.",
    "Утром над рекой стоит туман. К полудню он рассеивается, и с моста хорошо виден старый город: крыши, "
    "башня с часами и длинная улица, которая поднимается к парку.",
    "图书馆在公园的东边，每天早上九点开门。一楼是报纸和杂志，二楼有很多关于历史和地理的书。读者可以用"
    "卡片借书，最多可以借四个星期。",
    "駅から学校まで歩いて十五分かかります。途中に小さな川があり、春には桜がきれいに咲きます。雨の日はバスに"
    "乗る人が多いです。",
    "도서관은 시청 옆에 있습니다. 평일에는 밤 아홉 시까지 열려 있고, 주말에는 여섯 시에 문을 닫습니다. "
    "책은 두 주 동안 빌릴 수 있습니다.",
    "تقع المدرسة قرب النهر، ويصل إليها الطلاب سيرا على الأقدام أو بالحافلة. يبدأ الدرس الأول في الثامنة "
    "صباحا وينتهي اليوم في الثانية ظهرا.",
    "यह बाज़ार शहर के बीच में है। यहाँ सुबह ताज़ी सब्ज़ियाँ और फल मिलते हैं, और शाम को लोग चाय पीने और बातें करने आते हैं।",
    "def mean(values):\n    total = 0.0\n    for value in values:\n        total += value\n"
    "    return total / len(values)\n\n\nclass Counter:\n    def __init__(self):\n"
    "        self.counts = {}\n\n    def add(self, word):\n"
    "        self.counts[word] = self.counts.get(word, 0) + 1\n",
    "#include <stdio.h>\n\nint main(void) {\n    for (int i = 0; i < 10; i++) {\n"
    '        printf("%d squared is %d\\n", i, i * i);\n    }\n    return 0;\n}\n',
    "SELECT name, COUNT(*) AS orders FROM customers JOIN orders ON orders.customer = customers.id "
    "WHERE orders.placed >= '2021-03-01' GROUP BY name ORDER BY orders DESC LIMIT 20;",
    '{"id": 4711, "name": "bracket", "sizes": [12, 14.5, 16], "stock": {"north": 120, "south": null}, '
    '"active": true, "note": "replaces 4689"}',
    "2 + 3 = 5\n14 * 6 = 84\n1024 / 32 = 32\n7.25 - 0.5 = 6.75\n3, 6, 9, 12, 15, 18, 21, 24, 27, 30\n"
    "1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144\n0.125, 0.25, 0.5, 1.0, 2.0, 4.0",
    "| month | rain (mm) | sun (h) |\n| --- | --- | --- |\n| January | 62 | 48 |\n| February | 45 | 71 |\n"
    "| March | 51 | 118 |\n| April | 39 | 165 |\n| May | 58 | 203 |",
)
SEED = 20261130
LONG_BUDGET = 4096
"""Tokens in all from which on the sequences are long, as a GPU reads them in a tenth of a second."""
LONG, SHORT = 192, 64
PROMPT_TOKENS = 8
"""Length of a random prompt."""


def shape_of(tokens: int) -> tuple[int, int]:
    """How many sequences of how many tokens make about `tokens` in all."""
    length = LONG if tokens >= LONG_BUDGET else SHORT
    return max(4, tokens // length), length


def make_sequences(
    passages: Sequence[Sequence[int]] | None, tokens: int, vocab_size: int | None
) -> list[list[int]]:
    """About `tokens` tokens in sequences of one length: text of tokenized `passages`, random ids in turns."""
    count, length = shape_of(tokens)
    sequences = random_prompts(count, length, vocab_size, SEED)
    if passages is None or not all(passages):
        return sequences
    for number in range(0, count, 2):
        sequences[number] = _text(passages, length, number // 2)
    return sequences


def make_prompts(
    texts: Sequence[Sequence[int]] | None, count: int, vocab_size: int | None
) -> list[list[int]]:
    """At least `count` prompts to continue: the tokenized `texts` first, random ids after them."""
    known = [list(ids) for ids in texts] if texts is not None and all(texts) else []
    missing = max(count, len(PROMPTS)) - len(known)
    return [*known, *random_prompts(missing, PROMPT_TOKENS, vocab_size, SEED + 1)]


def _text(passages: Sequence[Sequence[int]], length: int, number: int) -> list[int]:
    """`length` tokens: the passage of this `number`, then others; they come again where they are too few.

    Each begins with a passage of its own, or sequences would share prefixes, and count twice.
    """
    generator = random.Random(SEED + number)  # noqa: S311 - load, not a secret
    ids = list(passages[number % len(passages)])
    while len(ids) < length:
        for passage in generator.sample(list(passages), len(passages)):
            ids += passage
    return ids[:length]
