from strandline.records.compacting import BatchFilter as BatchFilter
from strandline.records.compacting import KeyMap as KeyMap
