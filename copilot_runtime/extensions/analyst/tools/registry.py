"""The twelve tools by name."""

from collections.abc import Mapping

from copilot_runtime.extensions.analyst.tools.analyze_data import ANALYZE_DATA
from copilot_runtime.extensions.analyst.tools.compare_data import COMPARE_DATA
from copilot_runtime.extensions.analyst.tools.describe_metric_signals import DESCRIBE_METRIC_SIGNALS
from copilot_runtime.extensions.analyst.tools.download_data import DOWNLOAD_DATA
from copilot_runtime.extensions.analyst.tools.kpi_data import QUERY_KPI_DATA
from copilot_runtime.extensions.analyst.tools.patterns import ANALYZE_PATTERNS
from copilot_runtime.extensions.analyst.tools.plot_data import PLOT_DATA
from copilot_runtime.extensions.analyst.tools.query_data import QUERY_DATA
from copilot_runtime.extensions.analyst.tools.recall_memory import RECALL_MEMORY
from copilot_runtime.extensions.analyst.tools.run_sql import RUN_SQL
from copilot_runtime.extensions.analyst.tools.save_as_dataset import SAVE_AS_DATASET
from copilot_runtime.extensions.analyst.tools.summarize_data import SUMMARIZE_DATA
from copilot_runtime.extensions.analyst.tools.tool import AnalystTool

TOOLS: Mapping[str, AnalystTool] = {
    tool.name: tool
    for tool in (
        *(SUMMARIZE_DATA, QUERY_DATA, ANALYZE_DATA, COMPARE_DATA, QUERY_KPI_DATA, RUN_SQL),
        *(PLOT_DATA, ANALYZE_PATTERNS, SAVE_AS_DATASET, DOWNLOAD_DATA),
        *(DESCRIBE_METRIC_SIGNALS, RECALL_MEMORY),
    )
}
