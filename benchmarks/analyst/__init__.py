"""Questions about data: what our part of an answer costs, beside LangChain's SQL toolkit."""
